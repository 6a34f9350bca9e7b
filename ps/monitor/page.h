/* ps/monitor/page.h - the bytes of page.html, the status page, which the build embeds in the
 * program.
 * Owns:    nothing.
 * Threads: any.
 * Errors:  none. */
#ifndef PS_MONITOR_PAGE_H
#define PS_MONITOR_PAGE_H
#include <stddef.h>

extern const unsigned char page_html[];
extern const size_t page_html_bytes;

#endif
