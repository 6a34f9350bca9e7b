# Names of the settings, the same as in python/weir/flags.py and in the same order.
SETTINGS <- c(
    "ps_hosts", "worker_hosts", "n_workers", "task_index", "slurm_ps", "slurm_port", "join",
    "address", "tls_cert", "tls_key", "tls_ca", "token_file", "sync_mode",
    "replicas_to_aggregate", "staleness", "delay_compensation", "wire_dtype", "wire_step_ms",
    "shared_memory", "chunk_bytes", "train_steps", "batch_size", "seed", "optimizer",
    "learning_rate", "lr_schedule", "lr_warmup_steps", "lr_boundaries", "lr_decay",
    "lr_decay_steps", "clip_value", "clip_norm", "momentum", "decay", "beta1", "beta2", "epsilon",
    "weight_decay", "local_steps", "outer_optimizer", "outer_learning_rate", "outer_momentum",
    "own_local_steps", "data_name", "data_samples", "data_checksum", "arithmetic",
    "checkpoint_dir")

weir_settings <- function() SETTINGS

weir_version <- function() .Call(C_version)

weir_flags <- function(args = commandArgs(trailingOnly = TRUE)) {
    name <- sub("=.*", "", sub("^--", "", args))
    is_setting <- startsWith(args, "--") & name %in% SETTINGS
    value <- ifelse(grepl("=", args, fixed = TRUE), sub("^[^=]*=", "", args), "true")
    list(settings = as.list(stats::setNames(value[is_setting], name[is_setting])),
         others = args[!is_setting])
}

# Formats a value like Weir's flags: c("a:1", "b:2") is a:1,b:2.
as_text <- function(name, value) {
    if (!is.atomic(value) || length(value) == 0L || anyNA(value))
        fail(INVALID, sprintf("the setting '%s' must be a text, a number, TRUE or FALSE", name),
             sys.call(-2))
    text <- if (is.logical(value)) tolower(as.character(value))
            else if (!is.numeric(value)) as.character(value)
            else ifelse(value == round(value) & abs(value) < 2^53, sprintf("%.0f", value),
                        sprintf("%.15g", value))
    paste(text, collapse = ",")
}

weir_set <- function(member, ...) {
    pointer <- handle(member)
    settings <- list(...)
    if (length(settings) > 0L && (is.null(names(settings)) || any(names(settings) == "")))
        fail(INVALID, "settings must have names: weir_set(member, batch_size = 64)")
    for (name in names(settings))
        if (!is.null(settings[[name]])) {
            text <- as_text(name, settings[[name]])
            check(member, .Call(C_set, pointer, name, text))
            if (name == "own_local_steps")
                member$own <- text %in% c("true", "1")
        }
    invisible(member)
}

weir_log <- function(level = c("debug", "info", "warn", "error", "none")) {
    level <- match.arg(level)
    invisible(.Call(C_log, LEVELS[[level]]))
}
