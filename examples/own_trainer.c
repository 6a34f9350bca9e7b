/* examples/own_trainer.c - softmax regression on Fashion-MNIST (docs/guide/own-model.md):
 *     cc -O2 own_trainer.c -o own_trainer $(pkg-config --cflags --libs weir)
 *     weir-ps --ps_hosts=localhost:2222 &
 *     ./own_trainer ps_hosts localhost:2222 n_workers 2 task_index 0 &
 *     ./own_trainer ps_hosts localhost:2222 n_workers 2 task_index 1 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>

#define FOLDER "/usr/share/datasets/fashion-mnist/"
enum { PIXELS = 784, CLASSES = 10, ITEMS = 60000, BATCH = 64 };
static unsigned char image[ITEMS][PIXELS], label[ITEMS];

static void read_idx(const char *name, int head, void *to, size_t bytes)
{
    char command[200];
    snprintf(command, 200, "gzip -dc " FOLDER "train-%s-ubyte.gz | tail -c +%d", name, head + 1);
    FILE *f = popen(command, "r");
    if (!f || fread(to, 1, bytes, f) != bytes || pclose(f) != 0)
        exit(1);
}

static int check(struct weir *w, int code) /* codes below 0 are errors */
{
    if (code < 0)
        exit((fprintf(stderr, "own_trainer: %s\n", weir_error(w)), 1));
    return code;
}

/* Adds a sample's part of the batch's mean gradient; returns its loss. */
static double backward(const float *W, const float *b, int64_t i, float *dW, float *db)
{
    double z[CLASSES], sum = 0;
    for (int c = 0; c < CLASSES; c++) {
        z[c] = b[c];
        for (int p = 0; p < PIXELS; p++)
            z[c] += W[c * PIXELS + p] * image[i][p] / 255.0;
        sum += exp(z[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        float d = (float)((exp(z[c]) / sum - (c == label[i])) / BATCH);
        db[c] += d;
        for (int p = 0; p < PIXELS; p++)
            dW[c * PIXELS + p] += d * (float)image[i][p] / 255;
    }
    return log(sum) - z[label[i]];
}

int main(int argc, char **argv)
{
    read_idx("images-idx3", 16, image, sizeof image);
    read_idx("labels-idx1", 8, label, sizeof label);
    struct weir *w;
    struct weir_step s;
    if (weir_open(&w) != WEIR_OK)
        return 1;
    check(w, weir_set(w, "batch_size", "64"));
    for (int i = 1; i + 1 < argc; i += 2)
        check(w, weir_set(w, argv[i], argv[i + 1]));
    int64_t shape[] = {CLASSES, PIXELS};
    int W = check(w, weir_param(w, "weights", WEIR_FLOAT32, 2, shape, NULL));
    int b = check(w, weir_param(w, "biases", WEIR_FLOAT32, 1, shape, NULL));
    while (check(w, weir_next(w, -1, &s)) == WEIR_OK) {
        float *dW = weir_gradient(w, W), *db = weir_gradient(w, b); /* written before their push */
        double loss = 0;
        memset(dW, 0, CLASSES * PIXELS * sizeof *dW);
        memset(db, 0, CLASSES * sizeof *db);
        for (int k = 0; k < BATCH; k++)
            loss += backward(weir_values(w, W), weir_values(w, b),
                             weir_sample(w, ITEMS, s.position + k * s.stride), dW, db);
        fprintf(stderr, "step %d of %d: loss %.9g\n", (int)s.step, (int)s.train_steps,
                loss / BATCH);
        check(w, weir_push(w, W, dW, BATCH));
        check(w, weir_push(w, b, db, BATCH));
    }
    weir_close(w);
}
