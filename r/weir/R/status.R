# Reads the status of a running job, and the event files of Weir's workers.

weir_status <- function(ps_hosts, timeout = 10, flags = character()) {
    text <- json_of("weirctl", c(
        "--json", paste0("--ps_hosts=", paste(ps_hosts, collapse = ",")),
        sprintf("--timeout_s=%.0f", max(1, round(timeout))), flags, "status"))
    structure(jsonlite::fromJSON(text), class = "weir_status")
}

print.weir_status <- function(x, ...) {
    cat(sprintf("%s, step %s, %.3g steps/s\n", x$state,
                if (is.null(x$step)) "-" else format(x$step), x$steps_per_s))
    for (what in c("members", "servers"))
        if (is.data.frame(x[[what]])) {
            cat(what, ":\n", sep = "")
            print(x[[what]][!vapply(x[[what]], is.list, NA)], row.names = FALSE)
        }
    invisible(x)
}

# Reads scalars of the event files that Weir's workers write (--logdir). A record has the length (8
# bytes), its checksum (4), the Event, its checksum (4). An incomplete last record is ignored.
weir_scalars <- function(logdir) {
    logdir <- path.expand(logdir)
    files <- sort(list.files(logdir, "tfevents", recursive = TRUE, full.names = TRUE))
    if (length(files) == 0L)
        fail(INVALID, sprintf("%s: there are no event files (of a worker's --logdir)", logdir))
    rows <- lapply(files, function(file) {
        found <- file_scalars(readBin(file, "raw", file.size(file)))
        run <- dirname(substring(file, nchar(logdir) + 2L))
        if (nrow(found) > 0L) cbind(run = run, found) else NULL
    })
    out <- do.call(rbind, rows)
    if (is.null(out))
        out <- cbind(run = character(), no_scalars())
    # A later value of a step replaces an earlier one.
    out <- out[!duplicated(out[c("run", "tag", "step")], fromLast = TRUE), ]
    rownames(out) <- NULL
    out
}

no_scalars <- function()
    data.frame(step = numeric(), wall_time = numeric(), tag = character(), value = numeric())

number <- function(bytes, at, size, what = "integer") # little-endian
    readBin(bytes[seq.int(at, length.out = size)], what, 1L, size, endian = "little")

file_scalars <- function(bytes) {
    at <- 1
    steps <- times <- values <- list()
    while (at + 16 <= length(bytes) + 1) {
        n <- sum(as.numeric(bytes[at + 0:7]) * 256^(0:7))
        if (at + 16 + n > length(bytes) + 1)
            break
        fields <- message_fields(bytes, at + 12, n)
        for (value in scalars_of(bytes, fields)) {
            steps[[length(steps) + 1L]] <- value[1L]
            times[[length(times) + 1L]] <- value[2L]
            values[[length(values) + 1L]] <- value
        }
        at <- at + 16 + n
    }
    if (length(values) == 0L)
        return(no_scalars())
    data.frame(step = unlist(steps), wall_time = unlist(times),
               tag = vapply(values, attr, "", "tag"), value = vapply(values, `[`, 0, 3L))
}

# Returns the scalars of an Event: each is c(step, wall_time, value) with the attribute tag.
scalars_of <- function(bytes, event) {
    step <- 0
    time <- NA_real_
    found <- list()
    for (f in event) {
        if (f$field == 1 && f$type == 1)
            time <- number(bytes, f$at, 8L, "double")
        else if (f$field == 2 && f$type == 0)
            step <- f$value
    }
    for (f in Filter(function(f) f$field == 5 && f$type == 2, event))
        for (v in Filter(function(v) v$field == 1 && v$type == 2,
                         message_fields(bytes, f$at, f$n))) {
            parts <- message_fields(bytes, v$at, v$n)
            is <- vapply(parts, function(p) p$field + p$type / 8, 0)
            tag <- parts[is == 1 + 2 / 8]
            simple <- parts[is == 2 + 5 / 8]
            if (length(tag) > 0L && length(simple) > 0L) {
                text <- rawToChar(bytes[seq.int(tag[[1L]]$at, length.out = tag[[1L]]$n)])
                Encoding(text) <- "UTF-8"
                found[[length(found) + 1L]] <- structure(
                    c(step, time, number(bytes, simple[[1L]]$at, 4L, "double")), tag = text)
            }
        }
    found
}

# Returns the fields of a protobuf message of n bytes: the number, wire type and place of each
# value. Stops at the first field that is not valid.
message_fields <- function(bytes, at, n) {
    end <- at + n
    found <- list()
    while (at < end) {
        key <- varint(bytes, at, end)
        if (is.null(key))
            break
        f <- list(field = key$value %/% 8, type = key$value %% 8, at = key$at)
        if (f$type == 0 || f$type == 2) {
            value <- varint(bytes, f$at, end)
            if (is.null(value))
                break
            f$value <- f$n <- value$value
            f$at <- value$at
            at <- if (f$type == 2) f$at + f$n else f$at
        } else if (f$type == 1 || f$type == 5) {
            at <- f$at + if (f$type == 1) 8 else 4
        } else {
            break
        }
        if (at > end)
            break
        found[[length(found) + 1L]] <- f
    }
    found
}

varint <- function(bytes, at, end) {
    value <- 0
    factor <- 1
    while (at < end) {
        byte <- as.integer(bytes[at])
        value <- value + (byte %% 128L) * factor
        factor <- factor * 128
        at <- at + 1
        if (byte < 128L)
            return(list(value = value, at = at))
    }
    NULL
}
