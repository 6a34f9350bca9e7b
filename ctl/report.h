/* ctl/report.h - prints the status of a server, as one JSON document or as tables for operators.
 * docs/reference/weirctl.md lists the fields of the documents.
 * Threads: one.
 * Errors:  ST_NOMEM (logged). */
#ifndef CTL_REPORT_H
#define CTL_REPORT_H
#include "net/wire/status.h"

enum ctl_view { VIEW_STATUS, VIEW_MEMBERS, VIEW_SERVERS, VIEW_LATE, VIEW_TABLES };

enum status ctl_report_json(const struct net_status *s, enum ctl_view view);
enum status ctl_report_table(const struct net_status *s, enum ctl_view view);
enum status ctl_report_reply_json(const struct net_command_reply *reply);
/* Prints the command line with which a program joins. */
enum status ctl_report_line_json(const char *line);

#endif
