# Converts codes of weir.h to conditions of R.
DONE <- 1L
LEFT <- 2L
AGAIN <- 3L
REBASED <- 4L
OVER <- 5L
INVALID <- -1L
KINDS <- c("-1" = "invalid", "-2" = "refused", "-3" = "unavailable", "-4" = "cancelled",
           "-5" = "memory", "-6" = "unsupported", "-7" = "protocol", "-8" = "io", "3" = "timeout")
LEVELS <- c(debug = 0L, info = 1L, warn = 2L, error = 3L, none = 4L)

# Raises an error with the library's message and code. Its class is that of the code (weir_refused,
# weir_timeout, ...), and also weir_error.
fail <- function(code, text, call = sys.call(-1)) {
    kind <- KINDS[as.character(code)]
    stop(structure(class = c(if (!is.na(kind)) paste0("weir_", kind), "weir_error", "error",
                             "condition"),
                   list(message = text, call = call, code = code)))
}

# Returns the code, or raises an error if it is one. `what` precedes the message.
check <- function(member, code, what = NULL, call = sys.call(-1)) {
    if (is.integer(code) && length(code) == 1L && code < 0L)
        fail(code, paste(c(what, .Call(C_error, member$pointer, code)), collapse = ": "), call)
    code
}

# Returns the handle of an open member.
handle <- function(member, call = sys.call(-1)) {
    if (!inherits(member, "weir_member"))
        fail(INVALID, "a member is needed, which weir_open() returns", call)
    state <- .Call(C_is_open, member$pointer)
    if (state != 1L)
        fail(INVALID, if (state == 0L) "the member is closed"
                      else "the member is another process': it does not survive a fork", call)
    member$pointer
}

# Signals new log lines of the library, if weir_log() requested them, and new events.
tell <- function(member) {
    lines <- .Call(C_lines)
    levels <- attr(lines, "level")
    for (i in seq_along(lines)) {
        level <- names(LEVELS)[levels[i] + 1L]
        say(c(paste0("weir_log_", level), "weir_log"), lines[i], list(level = level))
    }
    while (!is.null(event <- .Call(C_event, member$pointer)))
        tell_event(event)
}

say <- function(classes, text, more = list()) {
    message(structure(class = c(classes, "message", "condition"),
                      c(list(message = paste0("weir: ", text, "\n"), call = NULL), more)))
}

tell_event <- function(event) {
    more <- list(step = event[2L], generation = event[3L], code = event[5L])
    if (event[1L] == 1)
        say(c("weir_began", "weir_event"),
            sprintf("begins at step %.0f, in generation %s", event[2L], generation(event[3L])),
            more)
    else if (event[1L] == 3)
        say(c("weir_rebased", "weir_event"),
            sprintf("generation %s has ended", generation(event[3L])), more)
    else if (event[1L] == 4)
        say(c("weir_stopped", "weir_event"),
            switch(as.character(event[5L]), "1" = "the job is done", "2" = "has left the job",
                   "5" = "the job was over before", "stopped by an error"), more)
}

# Formats a generation as EPOCH.NUMBER, like Weir's programs.
generation <- function(n) sprintf("%.0f.%.0f", n %/% 2^24, n %% 2^24)

# Repeats call(milliseconds) in short turns until it returns another code than AGAIN. Between two
# turns R handles Ctrl-C, and this function signals new log lines and events. timeout: seconds.
TURN <- 0.1
await <- function(member, call, timeout) {
    ends <- proc.time()[["elapsed"]] + timeout
    repeat {
        left <- ends - proc.time()[["elapsed"]]
        code <- call(as.integer(ceiling(1000 * max(0, min(TURN, left)))))
        tell(member)
        if (!identical(code, AGAIN) || left <= TURN)
            return(code)
    }
}
