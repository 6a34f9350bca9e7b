# A network with one hidden layer on Fashion-MNIST (Debian's package dataset-fashion-mnist) in base
# R, trained by Weir's servers; docs/guide/r.md explains it. A job of two such members:
#     weir-ps --ps_hosts=localhost:2222 &
#     Rscript softmax.R --ps_hosts=localhost:2222 --n_workers=2 --task_index=0 &
#     Rscript softmax.R --ps_hosts=localhost:2222 --n_workers=2 --task_index=1
# Without --ps_hosts it trains alone.
library(weir)

folder <- "/usr/share/datasets/fashion-mnist"
read_idx <- function(name, head, n) { # n bytes behind the head
    con <- gzfile(file.path(folder, paste0(name, "-ubyte.gz")), "rb")
    on.exit(close(con))
    readBin(con, "raw", head)
    readBin(con, "raw", n)
}
pixels <- 784L
images <- function(part, n) matrix(read_idx(paste0(part, "-images-idx3"), 16, n * pixels), pixels)
labels <- function(part, n) as.integer(read_idx(paste0(part, "-labels-idx1"), 8, n)) + 1L
n <- 60000L
x <- images("train", n) # raw, a column for each picture
y <- labels("train", n)

forward <- function(p, x) { # x: pixels x batch; returns the output of each layer
    hidden <- pmax(p$W1 %*% x + p$b1, 0)
    z <- p$W2 %*% hidden + p$b2
    e <- exp(z - rep(apply(z, 2, max), each = nrow(z)))
    list(hidden = hidden, probability = e / rep(colSums(e), each = nrow(e)))
}
batch <- function(x, items) matrix(as.integer(x[, items]) / 255, pixels)

set.seed(1) # the job starts with the values of the member that joins first
units <- 32L
flags <- weir_flags()
defaults <- list(batch_size = 64, train_steps = 300, optimizer = "adam", learning_rate = 0.003,
                 data_samples = n)
member <- do.call(weir_open, utils::modifyList(defaults, flags$settings))
weir_params(member, list(
    W1 = matrix(rnorm(units * pixels, sd = 0.05), units), b1 = numeric(units),
    W2 = matrix(rnorm(10 * units, sd = 0.2), 10), b2 = numeric(10)))

last <- weir_steps(member, function(step) {
    p <- weir_values(member)
    items <- weir_samples(member, step, n)
    a <- batch(x, items)
    f <- forward(p, a)
    truth <- cbind(y[items], seq_along(items))
    message(sprintf("step %.0f of %.0f: loss %.9g", step$step, step$train_steps,
                    -mean(log(f$probability[truth]))))
    d2 <- f$probability
    d2[truth] <- d2[truth] - 1
    d2 <- d2 / length(items) # the mean over the batch
    d1 <- (t(p$W2) %*% d2) * (f$hidden > 0)
    weir_push(member, list(W1 = d1 %*% t(a), b1 = rowSums(d1),
                           W2 = d2 %*% t(f$hidden), b2 = rowSums(d2)), samples = length(items))
})

if (!is.null(last)) {
    found <- max.col(t(forward(last, batch(images("t10k", 10000L), 1:10000))$probability))
    cat(sprintf("test accuracy: %.4f\n", mean(found == labels("t10k", 10000L))))
    file <- tempfile()
    writeBin(unlist(last), file)
    cat("values:", tools::md5sum(file), "\n") # equal checksums: the values have the same bits
}
