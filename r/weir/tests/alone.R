# Tests without servers: conversion of numbers, the order of dimensions, errors, a whole training.
library(weir)

fails <- function(code, class, pattern) {
    e <- tryCatch({ code; NULL }, error = identity)
    stopifnot(inherits(e, class), grepl(pattern, conditionMessage(e)))
}
said <- character()
hear <- function(code) withCallingHandlers(code, weir_event = function(e) {
    said <<- c(said, class(e)[1L])
    invokeRestart("muffleMessage")
})

first <- list(cube = array(as.double(1:24), c(2, 3, 4)),
              matrix = matrix(1:6, 2, dimnames = list(c("a", "b"), NULL)),
              vector = c(x = 0.1, y = 1e-3), one = 7, two = 2)
m <- weir_open(train_steps = 3, batch_size = 4, optimizer = "sgd", learning_rate = 0.5, seed = 1)
fails(weir_set(m, batch_size = "many"), "weir_invalid", "batch_size")
fails(weir_set(m, nothing = 1), "weir_invalid", "no setting 'nothing'")
fails(weir_params(m, list(a = NA_real_)), "weir_invalid", "element 1 is nan")
fails(weir_params(m, first, keep = c(on = 0.5)), "weir_invalid", "'on' is none of these")
fails(weir_params(m, first, keep = c(one = 2)), "weir_invalid", "from 0 to 1")
weir_params(m, first, keep = c(one = 0.75, two = 0.75))
fails(weir_params(m, list(one = 1)), "weir_error", "one")
fails(weir_values(m), "weir_invalid", "no values before")
stopifnot(inherits(tryCatch(weir_next(m), weir_event = identity), "weir_began"))
step <- weir_next(m)                                    # the same step that the ended call began
stopifnot(step$step == 0, step$n_samples == 4, identical(step$positions, c(0, 1, 2, 3)),
          step$began)
got <- weir_values(m)
stopifnot(identical(got$cube, first$cube), identical(dimnames(got$matrix), dimnames(first$matrix)),
          got$vector[["x"]] == 13421773 / 2^27,         # the nearest float32 to 0.1
          names(got$vector) == c("x", "y"), got$one == 7)
items <- weir_samples(m, step, 10)
stopifnot(length(unique(items)) == 4, items >= 1, items <= 10,
          sort(weir_samples(m, 0:9, 10)) == 1:10)

gradient <- lapply(got, function(p) { p[] <- seq_along(p); p })
fails(weir_push(m, gradient, samples = 0), "weir_invalid", "above 0")
fails(weir_push(m, list(cube = 1), samples = 4), "weir_invalid",
      "2 x 3 x 4; its dimensions are 1")
fails(weir_push(m, list(cube = aperm(gradient$cube)), samples = 4), "weir_invalid", "4 x 3 x 2")
fails(weir_push(m, list(hut = 1), samples = 4), "weir_invalid", "no parameter 'hut'")
fails(weir_push(m, list(one = 8, cube = replace(first$cube, 7, 1e39)), samples = 4),
      "weir_invalid", "^cube: gradient: element 7 is 1e\\+39, which is not a finite float32")
weir_push(m, gradient["one"], samples = 4)
fails(weir_push(m, gradient["one"], samples = 4), "weir_invalid", "it was already pushed")
fails(weir_next(m), "weir_invalid", "was not pushed at step 0")
weir_push(m, gradient[c("vector", "matrix", "cube", "two")], samples = 4)
fails(weir_values(m, "cube"), "weir_invalid", "still being received")
step <- hear(weir_next(m))
now <- weir_values(m)
stopifnot(all.equal(now$cube, first$cube - 0.5 * gradient$cube, tolerance = 1e-6),
          now$cube[2, 1, 4] == first$cube[2, 1, 4] - 0.5 * gradient$cube[2, 1, 4],
          abs(now$matrix[2, 3] - 3) < 1e-6,
          now$one == 0.75 * 7 + 0.25 * 1)               # a statistic that keeps 0.75 of its value
weir_push(m, gradient[c("vector", "two")], samples = 4)
weir_push(m, samples = 0)                               # all parameters that are not pushed yet
step <- hear(weir_next(m, early = TRUE))
stopifnot(weir_wait(m, "cube"), identical(weir_values(m, "cube")$cube, now$cube),
          weir_wait(m), identical(weir_values(m, "matrix"), now["matrix"]),
          weir_values(m)$one == now$one, weir_values(m)$vector < now$vector)
weir_push(m, list(cube = 0 * now$cube), samples = 4)
weir_push(m, samples = 0)
stopifnot(is.null(hear(weir_next(m))), m$result == "done", "weir_stopped" %in% said)
stopifnot(identical(weir_values(m, c("one", "cube")), now[c("one", "cube")]))
print(m)
weir_close(m)
weir_close(m)
fails(weir_next(m), "weir_invalid", "is closed")

# Factors of the learning rate and the weight decay, and a parameter without a gradient.
m <- weir_open(train_steps = 4, optimizer = "momentum", learning_rate = 0.5, momentum = 0.5,
               weight_decay = 0.25)
one <- list(a = 8, c = 8, b = 8, mean = 1, large = rep(8, 20000))
fails(weir_params(m, one, rate = c(on = 1)), "weir_invalid", "rate: 'on' is none of these")
fails(weir_params(m, one, keep = c(mean = 0), decay = c(mean = 1)), "weir_invalid",
      "'mean' is none of these parameters that are trained")
fails(weir_params(m, one, rate = c(a = -1)), "weir_invalid", "rate of 'a' .* of at least 0")
fails(weir_params(m, one, rate = c(a = 1e39)), "weir_invalid", "rate of 'a' .* of at least 0")
weir_params(m, one, keep = c(mean = 0), rate = list(b = 2), decay = c(b = 0, large = 0))
step <- suppressMessages(weir_next(m))
stopifnot(step$n_regions == 0)
weir_push(m, list(a = 1, c = 1, b = 1, mean = 2, large = rep(1, 20000)), samples = 1)
fails(weir_step_rate(m, 2), "weir_invalid", "before the first push")
weir_next(m)
stopifnot(weir_values(m)$a == 8 - 0.5 * (1 + 0.25 * 8), weir_values(m)$b == 8 - 0.5 * 2,
          weir_values(m)$large == 8 - 0.5)
fails(weir_step_rate(m, "2"), "weir_invalid", "must be a number")
fails(weir_step_rate(m, -1), "weir_invalid", "not negative")
weir_step_rate(m, 0.5)
fails(weir_push(m, list(b = 1, mean = NULL), samples = 1), "weir_invalid",
      "mean: it is a statistic, which has no gradient")
weir_push(m, list(a = NULL, c = 1, b = 1, large = NULL, mean = 3), samples = 1)
weir_next(m)
stopifnot(weir_values(m)$a == 6.5, weir_values(m)$b == 7 - 0.25 * 2 * 1.5,
          weir_values(m)$mean == 3, weir_values(m)$large == 7.5)
now <- weir_values(m)$c
weir_push(m, list(c = 1), samples = 1)
weir_push(m, samples = 0)                               # `a` is sent with `c`
weir_next(m)
stopifnot(weir_values(m)$a == 6.5, weir_values(m)$c < now, weir_values(m)$mean == 3, weir_values(m)$large == 7.5)
weir_close(m)

# A loop by weir_steps, and an error in its function.
m <- weir_open(train_steps = 20, batch_size = 1, optimizer = "sgd", learning_rate = 0.1)
weir_params(m, list(x = 5))
last <- suppressMessages(weir_steps(m, function(step)
    weir_push(m, list(x = weir_values(m)$x - 1), samples = 1)))
stopifnot(abs(last$x - (1 + 4 * 0.9^20)) < 1e-5)
m <- weir_open(train_steps = 20)
weir_params(m, list(x = 5))
fails(suppressMessages(weir_steps(m, function(step) stop("my own"))), "simpleError", "my own")
fails(weir_values(m), "weir_invalid", "is closed")

# A member without servers leaves at once.
m <- weir_open(train_steps = 20)
weir_params(m, list(x = 5))
suppressMessages(weir_next(m))
stopifnot(identical(weir_leave(m), "left"), identical(m$result, "left"))
fails(weir_next(m), "weir_invalid", "is closed")

# No server runs: a wait ends in time, and the log has the reason.
weir_log("info")
m <- weir_open(ps_hosts = "127.0.0.1:1", n_workers = 1, task_index = 0)
weir_params(m, list(x = 5))
fails(weir_next(m, timeout = 0.2), "weir_timeout", "no step within 0.2 s")
line <- tryCatch(weir_next(m), weir_log = identity)
stopifnot(grepl("waiting for ps:0 (127.0.0.1:1)", conditionMessage(line), fixed = TRUE))
weir_log("none")
rm(m)
invisible(gc())

stopifnot(identical(weir_flags(c("--seed=3", "file", "--join", "--verbose")),
                    list(settings = list(seed = "3", join = "true"),
                         others = c("file", "--verbose"))))
fails(weir_status("127.0.0.1:1", timeout = 1), "weir_error", "weirctl|jsonlite")
fails(weir_scalars(tempdir()), "weir_invalid", "no event files")
cat(weir_version(), "\n")
