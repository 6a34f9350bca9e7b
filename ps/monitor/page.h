/* ps/monitor/page.h - page.html, the status page, whose bytes the build puts into the program.
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef PS_MONITOR_PAGE_H
#define PS_MONITOR_PAGE_H
#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;

#endif
