# GPUs of a machine that several users share: python/weir/gpus.py has the same functions.

POLL <- 0.5 # seconds between two attempts
held <- new.env(parent = emptyenv()) # gpu: the reservation of this process

# Runs a program of Weir, and returns its JSON.
json_of <- function(program, args, call = sys.call(-1)) {
    if (!requireNamespace("jsonlite", quietly = TRUE))
        fail(-6L, paste("the package jsonlite is needed: install.packages(\"jsonlite\"), or",
                        "Debian's r-cran-jsonlite"), call)
    path <- file.path(Sys.getenv("WEIR_PROGRAMS"), program)
    if (!file.exists(path)) # a build folder has names without weir-
        path <- file.path(Sys.getenv("WEIR_PROGRAMS"), sub("weir-", "", program))
    if (Sys.getenv("WEIR_PROGRAMS") == "")
        path <- Sys.which(program)
    if (!file.exists(path))
        fail(INVALID, paste("there is no program", program, "in PATH; install Weir, or set",
                            "WEIR_PROGRAMS to the folder that has it"), call)
    said <- tempfile()
    on.exit(unlink(said))
    text <- suppressWarnings(system2(path, shQuote(args), stdout = TRUE, stderr = said))
    exit <- attr(text, "status")
    if (!is.null(exit))
        fail(if (exit == 138L) -3L else -9L,
             utils::tail(c(sprintf("%s: exit status %d", program, exit), readLines(said)), 1L),
             call)
    paste(text, collapse = "\n")
}

weir_devices <- function(memory_fraction = 0, lock_dir = NULL) {
    visible <- if (is.null(held$gpu)) NA_character_ else held$gpu$visible
    before <- Sys.getenv("CUDA_VISIBLE_DEVICES", NA)
    if (!is.null(held$gpu)) { # the list is that of the whole machine
        set_visible(visible)
        on.exit(set_visible(before))
    }
    text <- json_of("weir-worker", c(
        "--list_devices=json", if (!is.null(lock_dir)) paste0("--gpu_lock_dir=", lock_dir),
        if (memory_fraction > 0) c(sprintf("--gpu_memory_fraction=%g", memory_fraction),
                                   "--gpu_allow_growth")))
    structure(jsonlite::fromJSON(text, simplifyDataFrame = FALSE), class = "weir_devices")
}

set_visible <- function(value) {
    if (is.na(value)) Sys.unsetenv("CUDA_VISIBLE_DEVICES")
    else Sys.setenv(CUDA_VISIBLE_DEVICES = value)
}

gpus_of <- function(listed) Filter(function(d) d$device_type == "GPU", listed$devices)

label <- function(gpu)
    sprintf("%s (%s, %s, %.0f GB)", sub("/device:GPU:", "GPU ", gpu$name), gpu$product, gpu$uuid,
            gpu$memory_bytes / 1e9)

print.weir_devices <- function(x, ...) {
    for (gpu in gpus_of(x)) {
        cat(label(gpu), ": ", if (gpu$auto) "free" else paste("not free:", gpu$auto_refuses), "\n",
            sep = "")
        for (r in gpu$reservations)
            cat(sprintf("  %s of %s (process %s) has reserved %s since %s\n",
                        if (is.null(r$program)) "a process" else r$program, r$user,
                        if (is.null(r$pid)) "unknown" else r$pid,
                        if (is.null(r$memory_fraction)) "it"
                        else sprintf("%g of the memory", r$memory_fraction), r$since))
    }
    if (length(gpus_of(x)) == 0L)
        cat("no GPU:", x$why_no_gpu, "\n")
    invisible(x)
}

# Reserves the first free GPU. Returns its description and the reservation, or the reasons why no
# GPU is free.
try_gpus <- function(memory_fraction, lock_dir, call) {
    listed <- weir_devices(memory_fraction, lock_dir)
    reasons <- listed$why_no_gpu
    gpus <- gpus_of(listed)
    for (gpu in gpus[order(vapply(gpus, function(d) length(d$reservations), 0L))]) {
        why <- gpu$auto_refuses
        if (gpu$auto) {
            made <- .Call(C_gpu_reserve, gpu$uuid, memory_fraction, listed$lock_dir)
            if (!is.list(made))
                return(list(gpu = gpu, pointer = made))
            if (made[[1L]] < 0L)
                fail(made[[1L]], made[[2L]], call)
            why <- made[[2L]]
        }
        reasons <- c(reasons, paste0(sub("/device:GPU:", "GPU ", gpu$name), ": ", why))
    }
    list(why = paste(reasons, collapse = "; "))
}

weir_reserve <- function(memory_fraction = 0, wait = 0, required = FALSE, lock_dir = NULL) {
    if (!isTRUE(memory_fraction >= 0 && memory_fraction <= 1 && wait >= 0 && wait < Inf))
        fail(INVALID, paste("weir_reserve needs memory_fraction from 0 to 1 (0: the whole GPU), and",
                            "wait from 0 seconds"))
    before <- held$gpu
    if (!is.null(before) && before$memory_fraction == memory_fraction && !is.null(before$pointer))
        return(before)
    if (!is.null(before))
        weir_release(before)
    deadline <- Sys.time() + wait
    said <- ""
    repeat {
        found <- try_gpus(memory_fraction, lock_dir, sys.call())
        left <- as.numeric(deadline - Sys.time(), units = "secs")
        if (!is.null(found$pointer) || left <= 0)
            break
        if (found$why != said)
            cat(sprintf("waiting for a GPU, at most %.0f s: %s\n", left, found$why))
        said <- found$why
        Sys.sleep(min(POLL, left))
    }
    if (required && is.null(found$pointer))
        fail(-3L, paste("no GPU is free:", found$why))
    gpu <- structure(new.env(parent = emptyenv()), class = "weir_gpu")
    gpu$gpu <- found$gpu
    gpu$pointer <- found$pointer
    gpu$why <- found$why
    gpu$memory_fraction <- memory_fraction
    gpu$device <- if (is.null(found$pointer)) "cpu" else "cuda"
    gpu$visible <- Sys.getenv("CUDA_VISIBLE_DEVICES", NA)
    held$gpu <- gpu
    set_visible(if (is.null(found$gpu)) "" else found$gpu$uuid)
    print(gpu)
    invisible(gpu)
}

weir_release <- function(gpu) {
    if (!is.null(gpu$pointer))
        .Call(C_gpu_release, gpu$pointer)
    gpu$pointer <- NULL
    if (identical(held$gpu, gpu)) {
        held$gpu <- NULL
        set_visible(gpu$visible)
    }
    invisible(NULL)
}

print.weir_gpu <- function(x, ...) {
    cat(if (is.null(x$gpu)) paste("no GPU is free, computing on the CPU:", x$why)
        else paste0("reserved: ", if (x$memory_fraction > 0)
            sprintf("%g of the memory of ", x$memory_fraction), label(x$gpu)), "\n", sep = "")
    invisible(x)
}
