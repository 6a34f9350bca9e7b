# A member of a job: weir.h's functions for R.

weir_open <- function(...) {
    pointer <- .Call(C_open)
    if (is.integer(pointer))
        fail(pointer, .Call(C_error, NULL, pointer))
    member <- structure(new.env(parent = emptyenv()), class = "weir_member")
    member$pointer <- pointer
    member$params <- list() # name: attributes (dimensions, names) of the parameter's values
    member$result <- NULL
    member$step <- NULL
    member$own <- FALSE # own_local_steps
    weir_set(member, ...)
    member
}

weir_close <- function(member) {
    if (.Call(C_is_open, member$pointer) != 0L)
        .Call(C_close, member$pointer)
    invisible(NULL)
}

weir_params <- function(member, params, keep = NULL, rate = NULL, decay = NULL) {
    pointer <- handle(member)
    if (!is.list(params) || is.null(names(params)) || anyDuplicated(names(params)))
        fail(INVALID, "parameters must be a list of arrays with distinct names")
    keep <- check_numbers("keep", keep, names(params), 1)
    rate <- check_numbers("rate", rate, setdiff(names(params), names(keep)), MOST)
    decay <- check_numbers("decay", decay, setdiff(names(params), names(keep)), MOST)
    for (name in names(params)) {
        value <- params[[name]]
        if (name %in% names(member$params))
            fail(INVALID, sprintf("parameter '%s' already exists", name))
        if (!is.numeric(value) && !is.logical(value))
            fail(INVALID, sprintf("parameter '%s' must be numeric", name))
        dims <- if (is.null(dim(value))) length(value) else dim(value)
        number_of <- function(numbers, other)
            if (is.null(numbers[[name]])) other else as.numeric(numbers[[name]])
        number <- .Call(C_param, pointer, name, as.numeric(dims), as_doubles(value),
                        number_of(keep, -1), c(number_of(rate, 1), number_of(decay, 1)))
        check(member, number)
        member$params[[name]] <- list(number = number, dims = dims,
                                      attributes = attributes(value)[c("dim", "dimnames", "names")])
    }
    invisible(member)
}

MOST <- 3.4e38 # of factors, which are float32

# Checks numbers from 0 to `most` of parameters with these names, before any parameter is added, and
# returns them as a list.
check_numbers <- function(what, numbers, names, most, call = sys.call(-1)) {
    numbers <- as.list(numbers)
    if (length(numbers) > 0L && (is.null(names(numbers)) || anyDuplicated(names(numbers))))
        fail(INVALID, sprintf("%s must have numbers with distinct names of parameters", what), call)
    unknown <- setdiff(names(numbers), names)
    if (length(unknown) > 0L)
        fail(INVALID, sprintf("%s: '%s' is none of these parameters%s", what, unknown[1L],
                              if (what == "keep") "" else " that are trained"), call)
    for (name in names(numbers)) {
        value <- numbers[[name]]
        if (!is.numeric(value) || length(value) != 1L || !isTRUE(value >= 0 && value <= most))
            fail(INVALID, sprintf("%s of '%s' must be a number %s", what, name,
                                  if (most == 1) "from 0 to 1" else "of at least 0"), call)
    }
    numbers
}

# Returns the numbers as doubles; copies them only if they have another type.
as_doubles <- function(value) if (is.double(value)) value else as.double(value)

# Returns the parameters with these names, or all if names is NULL.
params_of <- function(member, names, call = sys.call(-1)) {
    if (is.null(names))
        return(member$params)
    unknown <- setdiff(names, names(member$params))
    if (length(unknown) > 0L)
        fail(INVALID, sprintf("there is no parameter '%s'", unknown[1L]), call)
    member$params[names]
}

weir_next <- function(member, timeout = Inf, early = FALSE) {
    pointer <- handle(member)
    got <- await(member, function(ms) .Call(C_next, pointer, early, ms), timeout)
    if (identical(got, AGAIN))
        fail(AGAIN, sprintf("no step within %g s", timeout))
    check(member, got)
    if (is.list(got)) {
        got$positions <- seq(got$position, by = got$stride, length.out = got$n_samples)
        member$step <- structure(got, class = "weir_step")
        .Call(C_got, pointer)
        return(member$step)
    }
    member$step <- NULL
    member$result <- if (got == DONE) "done" else if (got == OVER) "over" else "left"
    NULL
}

weir_steps <- function(member, f, on_interrupt = c("stop", "leave")) {
    handle(member)
    on_interrupt <- match.arg(on_interrupt)
    on.exit(weir_close(member))
    loop <- function()
        while (!is.null(step <- weir_next(member)))
            f(step)
    if (on_interrupt == "leave")
        tryCatch(telling_errors(member, loop()), interrupt = function(i) leave(member, 60))
    else
        telling_errors(member, loop())
    last <- if (identical(member$result, "done")) weir_values(member)
    invisible(last)
}

# Sends an error of the program to the servers, so that they do not wait for this member.
telling_errors <- function(member, code)
    withCallingHandlers(code, error = function(e) {
        why <- gsub("\\s+", " ", conditionMessage(e))
        if (.Call(C_is_open, member$pointer) == 1L)
            .Call(C_leave_failed, member$pointer, substr(why, 1L, 300L))
    })

weir_samples <- function(member, step, n) {
    pointer <- handle(member)
    positions <- if (inherits(step, "weir_step")) step$positions else as.numeric(step)
    check(member, .Call(C_samples, pointer, as.numeric(n), positions))
}

weir_values <- function(member, names = NULL) {
    pointer <- handle(member)
    params <- params_of(member, names)
    for (name in names(params)) {
        value <- .Call(C_values, pointer, params[[name]]$number)
        check(member, value, name)
        attributes(value) <- params[[name]]$attributes
        params[[name]] <- value
    }
    params
}

# Pushes all arrays of a list, or none if one of them is not valid.
push_all <- function(member, values, samples, own, call) {
    pointer <- handle(member, call)
    if (is.null(values) && identical(as.numeric(samples), 0)) {
        nothing <- function(ms) .Call(C_push_nothing, pointer, member$own, ms)
        return(check(member, await(member, nothing, Inf), NULL, call))
    }
    if (!is.list(values) || is.null(names(values)) || anyDuplicated(names(values)))
        fail(INVALID, "a list of arrays with the parameters' names is needed", call)
    if (!is.numeric(samples) || length(samples) != 1L || !isTRUE(samples > 0))
        fail(INVALID, paste("samples must be the number of samples in the mean, above 0;",
                            "or 0, without arrays, to contribute nothing"), call)
    params <- params_of(member, names(values), call)
    for (name in names(params)) {
        value <- values[[name]]
        if (is.null(value))
            next
        dims <- if (is.null(dim(value))) length(value) else dim(value)
        if (!is.numeric(value) || length(value) != prod(params[[name]]$dims) ||
                (length(dims) > 1L && !identical(as.integer(dims),
                                                 as.integer(params[[name]]$dims))))
            fail(INVALID, sprintf("%s: needs numbers with the dimensions %s; its dimensions are %s",
                                  name, paste(params[[name]]$dims, collapse = " x "),
                                  paste(dims, collapse = " x ")), call)
    }
    code <- .Call(C_push, pointer, vapply(params, `[[`, 0L, "number"),
                  lapply(values[names(params)], function(v) if (!is.null(v)) as_doubles(v)),
                  as.numeric(samples), own)
    check(member, code[1L], names(params)[code[2L]], call)
}

weir_step_rate <- function(member, factor) {
    pointer <- handle(member)
    if (!is.numeric(factor) || length(factor) != 1L || is.na(factor))
        fail(INVALID, "the factor of the learning rate must be a number")
    check(member, .Call(C_step_rate, pointer, as.numeric(factor)))
    invisible(member)
}

weir_push <- function(member, gradients = NULL, samples) {
    push_all(member, gradients, samples, FALSE, sys.call())
    invisible(member)
}

weir_push_values <- function(member, values = NULL, samples) {
    push_all(member, values, samples, TRUE, sys.call())
    invisible(member)
}

weir_pull <- function(member, names = NULL) {
    pointer <- handle(member)
    for (p in params_of(member, names))
        check(member, .Call(C_pull, pointer, p$number))
    invisible(member)
}

weir_wait <- function(member, names = NULL, timeout = Inf) {
    pointer <- handle(member)
    ends <- proc.time()[["elapsed"]] + timeout
    params <- params_of(member, names)
    for (name in names(params)) {
        number <- params[[name]]$number
        code <- await(member, function(ms) .Call(C_wait, pointer, number, ms),
                      ends - proc.time()[["elapsed"]])
        if (identical(code, AGAIN))
            fail(AGAIN, sprintf("%s: no new values within %g s", name, timeout))
        if (check(member, code, name) == REBASED)
            return(FALSE)
    }
    TRUE
}

weir_leave_soon <- function(member, timeout = 10) {
    pointer <- handle(member)
    code <- await(member, function(ms) .Call(C_leave_soon, pointer, ms), timeout)
    check(member, code) != AGAIN
}

weir_leave <- function(member, timeout = 60) {
    on.exit(weir_close(member))
    invisible(leave(member, timeout))
}

leave <- function(member, timeout) {
    nothing <- "there is nothing to leave"
    is_there <- tryCatch({
        weir_leave_soon(member, timeout)
        TRUE
    }, weir_invalid = function(e) if (startsWith(conditionMessage(e), nothing)) FALSE else stop(e))
    telling_errors(member, while (is_there && is.null(member$result)) {
        weir_push(member, samples = 0)
        weir_next(member, timeout)
    })
    if (is.null(member$result))
        member$result <- "left"
    member$result
}

weir_leave_failed <- function(member, why) {
    pointer <- handle(member)
    check(member, .Call(C_leave_failed, pointer, paste(why, collapse = " ")))
    invisible(member)
}

print.weir_step <- function(x, ...) {
    cat(sprintf("step %.0f of %.0f: %.0f samples from position %.0f on, rank %.0f of %.0f\n",
                x$step, x$train_steps, x$n_samples, x$position, x$rank, x$n_members))
    invisible(x)
}

print.weir_member <- function(x, ...) {
    open <- .Call(C_is_open, x$pointer) == 1L
    cat(sprintf("A member of a job of Weir's servers, %s\n", if (open) "open" else "closed"))
    for (name in names(x$params))
        cat(sprintf("  %s: %s\n", name, paste(x$params[[name]]$dims, collapse = " x ")))
    if (!is.null(x$step))
        print(x$step)
    invisible(x)
}
