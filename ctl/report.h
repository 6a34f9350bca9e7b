/* ctl/report.h - what a server told, as one JSON document on stdout, or as tables for people. The
 * documents' fields are in docs/reference/weirctl.md.
 * Threads: none.
 * Errors:  ST_NOMEM (logged). */
#ifndef CTL_REPORT_H
#define CTL_REPORT_H
#include "net/wire/status.h"

enum ctl_view { VIEW_STATUS, VIEW_MEMBERS, VIEW_SERVERS, VIEW_LATE };

enum status ctl_report_json(const struct net_status *s, enum ctl_view view);
enum status ctl_report_table(const struct net_status *s, enum ctl_view view);
enum status ctl_report_reply_json(const struct net_command_reply *reply);
/* The command line with which somebody joins. */
enum status ctl_report_line_json(const char *line);

#endif
