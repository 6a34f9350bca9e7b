/* tests/fake_backend/wrong.c - the CPU backend with one error: each gradient of weights is a little
 * too large. A test of the backend must detect this. */
#include "kernels/backend_abi.h"
#include <dlfcn.h>
#include <stddef.h>

static const struct backend *right;
static struct backend_plan_config cfg; /* configuration of the last plan */

static enum status plan_create(const struct backend_plan_config *c, struct plan **out)
{
    cfg = *c;
    return right->plan_create(c, out);
}

static enum status backward(struct plan *p, int layer)
{
    const struct layer *l = &cfg.layers[layer];
    enum status st = right->backward(p, layer);
    if (st == ST_OK && l->kind == LAYER_DENSE)
        cfg.grads[l->param[0]][0] += 0.01f;
    return st;
}

BACKEND_ABI_EXPORT;
extern struct backend weir_backend;
struct backend weir_backend;

__attribute__((constructor)) static void fill(void)
{
    void *so = dlopen(WEIR_RIGHT_BACKEND, RTLD_NOW | RTLD_LOCAL);
    right = so != NULL ? dlsym(so, "weir_backend") : NULL;
    if (right == NULL)
        return;
    weir_backend = *right;
    weir_backend.plan_create = plan_create;
    weir_backend.backward = backward;
}
