/* tests/emulation/dnn_graph.c - the part of cuDNN's backend API that the backend calls: graphs of
 * one convolution, with or without a bias and a relu after it. It is strict. An attribute must
 * belong to its descriptor, have its type and count, be set before the descriptor is finalized, and
 * be read after that. The descriptors that an attribute names must be finalized, and all required
 * attributes must be set. Otherwise a call returns CUDNN_STATUS_BAD_PARAM. Tensors are packed, in
 * any layout. A graph runs only on device memory of their sizes, and its workspace is filled with
 * NaN. The caller must check an engine (dnn_graph.h) before it uses the engine: an engine that
 * rounds more, or needs more memory, than allowed ends the program when it runs, or yields wrong
 * values.
 *
 * WEIR_EMULATED_GRAPH selects a fault. "fails": the first proposal fails when it runs. "all_fail":
 * all proposals fail when they run. "none": there are no proposals. "no_bias": there are no
 * proposals for graphs of more than a convolution. "no_graph": no graph can be created.
 * "no_convolution": no convolution can be created either. "no_padding": a convolution's padding
 * cannot be set. "wide": workspaces are larger by EMULATION_WIDE. */
#include "tests/emulation/dnn_graph.h"
#include "tests/emulation/dnn.h"
#include "tests/emulation/errors.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

static int is_asked(const char *what)
{
    const char *e = getenv("WEIR_EMULATED_GRAPH");
    return e != NULL && strcmp(e, what) == 0;
}

/* ---- descriptors ---- */

enum { MOST_ATTRIBUTES = 8, MOST_VALUES = 8, MOST_OPS = 3, MOST_TENSORS = 4 };

/* An attribute of a descriptor with its n values of one type. A value that is a descriptor is a
 * pointer. */
struct value {
    cudnnBackendAttributeName_t name;
    int64_t n;
    union {
        int64_t whole[MOST_VALUES];
        void *pointer[MOST_VALUES];
        float real;
        int choice; /* an enum, or a boolean */
    } of;
};

struct tensor {
    int64_t d[4], stride[4], id, alignment;
    cudnnDataType_t type;
    int is_virtual;
};

/* The computation of a graph; tensors: x, w, y, bias. */
struct work {
    int way, relu, n_tensors;
    struct tensor t[MOST_TENSORS];
    int64_t pad[2], step[2];
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    int is_final;
    struct value value[MOST_ATTRIBUTES];
    int n_values;
    int engine;               /* engine of a filled-in configuration or engine; else -1 */
    struct descriptor *graph; /* graph of a configuration or engine */
    struct work work;         /* work of a graph */
    cudnnHandle_t handle;     /* handle of a graph */
};

/* An attribute: its number of values, and the kind of descriptor to which it belongs. */
static const struct rule {
    cudnnBackendDescriptorType_t of;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int least, most; /* least 0: it is optional */
    int kind;        /* kind of descriptor; -1: any operation */
} rules[] = {
#define TENSOR CUDNN_BACKEND_TENSOR_DESCRIPTOR
    {TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1, 0},
    {TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1, 0},
#define CONV CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
    {CONV, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, 0},
    {CONV, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, 1, 0},
    {CONV, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, 1, 0},
    {CONV, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, 2, 0},
    {CONV, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, 2, 0},
    {CONV, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, 2, 0},
    {CONV, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, 2, 0},
#define ONE CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1
#define FORWARD CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, ONE, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, ONE, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, ONE, TENSOR},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, ONE, CONV},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, 0},
    {FORWARD, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, 1, 0},
#define FILTER CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, ONE, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, ONE, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, ONE, TENSOR},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, ONE, CONV},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, 0},
    {FILTER, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, 1, 0},
#define DATA CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, ONE, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, ONE, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, ONE, TENSOR},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, ONE, CONV},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, 1, 0},
    {DATA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, 1, 0},
#define POINTWISE CUDNN_BACKEND_POINTWISE_DESCRIPTOR
    {POINTWISE, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, 0},
    {POINTWISE, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, 0},
#define POINTWISE_OP CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, ONE, POINTWISE},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, ONE, TENSOR},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, ONE, TENSOR},
    {POINTWISE_OP, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, 1,
     TENSOR},
#define GRAPH CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, MOST_OPS, -1},
    {GRAPH, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, 0},
#define HEURISTICS CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, ONE, GRAPH},
    {HEURISTICS, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, 0},
#define PLAN CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
#define CONFIG CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, ONE, CONFIG},
    {PLAN, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, 0},
#define PACK CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
    {PACK, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, MOST_TENSORS, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, MOST_TENSORS, 0},
    {PACK, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, 0},
};
#define ENGINE CUDNN_BACKEND_ENGINE_DESCRIPTOR
enum { N_RULES = sizeof rules / sizeof *rules };

static const struct rule *rule_of(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int k = 0; k < N_RULES; k++)
        if (rules[k].of == d->type && rules[k].name == name)
            return &rules[k];
    return NULL;
}

/* Returns the value of an attribute; NULL: the attribute was not set. */
static const struct value *value_of(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    for (int k = 0; k < d->n_values; k++)
        if (d->value[k].name == name)
            return &d->value[k];
    return NULL;
}

static struct descriptor *part(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct value *v = value_of(d, name);
    return v == NULL ? NULL : v->of.pointer[0];
}

static int choice(const struct descriptor *d, cudnnBackendAttributeName_t name)
{
    const struct value *v = value_of(d, name);
    return v == NULL ? 0 : v->of.choice;
}

static size_t value_bytes(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
        return sizeof(void *);
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return sizeof(int); /* floats, and enums */
    }
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *out)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    struct descriptor *d = calloc(1, sizeof *d);
    if (d == NULL)
        return CUDNN_STATUS_ALLOC_FAILED;
    d->type = type;
    d->engine = -1;
    *out = d;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static int is_operation(cudnnBackendDescriptorType_t type)
{
    return type == FORWARD || type == FILTER || type == DATA || type == POINTWISE_OP;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *at)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    struct descriptor *d = descriptor;
    const struct rule *r = d == NULL ? NULL : rule_of(d, name);
    if (r == NULL || d->is_final || at == NULL || type != r->type || n < 1 || n < r->least ||
        n > r->most || value_of(d, name) != NULL)
        return CUDNN_STATUS_BAD_PARAM;
    if (name == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS && is_asked("no_padding"))
        return CUDNN_STATUS_NOT_SUPPORTED;
    struct value *v = &d->value[d->n_values];
    *v = (struct value){.name = name, .n = n};
    memcpy(&v->of, at, (size_t)n * value_bytes(type));
    for (int k = 0; k < n && type == CUDNN_TYPE_BACKEND_DESCRIPTOR; k++) {
        const struct descriptor *of = v->of.pointer[k];
        if (of == NULL || !of->is_final ||
            (r->kind < 0 ? !is_operation(of->type) : (int)of->type != r->kind))
            return CUDNN_STATUS_BAD_PARAM;
    }
    if (type == CUDNN_TYPE_HANDLE && v->of.pointer[0] == NULL)
        return CUDNN_STATUS_BAD_PARAM;
    d->n_values++;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- finalization of descriptors ---- */

static void tensor_get(const struct descriptor *d, struct tensor *t)
{
    memcpy(t->d, value_of(d, CUDNN_ATTR_TENSOR_DIMENSIONS)->of.whole, sizeof t->d);
    memcpy(t->stride, value_of(d, CUDNN_ATTR_TENSOR_STRIDES)->of.whole, sizeof t->stride);
    t->id = value_of(d, CUDNN_ATTR_TENSOR_UNIQUE_ID)->of.whole[0];
    t->alignment = value_of(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->of.whole[0];
    t->type = (cudnnDataType_t)choice(d, CUDNN_ATTR_TENSOR_DATA_TYPE);
    t->is_virtual = choice(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

static int64_t tensor_elems(const struct tensor *t)
{
    return t->d[0] * t->d[1] * t->d[2] * t->d[3];
}

static int is_last(const struct tensor *t)
{
    return t->stride[1] == 1 && t->stride[3] == t->d[1] && t->stride[2] == t->d[3] * t->d[1] &&
           t->stride[0] == t->d[2] * t->stride[2];
}

/* Accepts packed tensors in the order of planes, or with the channels last. */
static cudnnStatus_t tensor_finalize(const struct descriptor *d)
{
    struct tensor t;
    tensor_get(d, &t);
    int is_planes = t.stride[3] == 1 && t.stride[2] == t.d[3] && t.stride[1] == t.d[2] * t.d[3] &&
                    t.stride[0] == t.d[1] * t.stride[1];
    int sound = t.alignment >= 4 && (t.alignment & (t.alignment - 1)) == 0 &&
                (is_last(&t) || is_planes) &&
                (t.type == CUDNN_DATA_FLOAT || t.type == CUDNN_DATA_BFLOAT16);
    for (int k = 0; k < 4; k++)
        sound &= t.d[k] > 0;
    return sound ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t convolution_finalize(const struct descriptor *d)
{
    const int64_t *lo = value_of(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->of.whole;
    const int64_t *hi = value_of(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)->of.whole;
    const int64_t *dilation = value_of(d, CUDNN_ATTR_CONVOLUTION_DILATIONS)->of.whole;
    const int64_t *step = value_of(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->of.whole;
    int sound = value_of(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)->of.whole[0] == 2 &&
                choice(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                choice(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION;
    for (int k = 0; k < 2; k++)
        sound &= lo[k] >= 0 && lo[k] == hi[k] && dilation[k] == 1 && step[k] > 0;
    return sound ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

enum { X, W, Y, BIAS };

/* The attributes of an operation: its tensors, its convolution and its factors. */
static const struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t tensor[3], convolution, alpha, beta;
} products[EMULATION_N_WAYS] = {
    {FORWARD,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {FILTER,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    {DATA,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
};

static int way_of(const struct descriptor *op)
{
    for (int k = 0; k < EMULATION_N_WAYS; k++)
        if (products[k].type == op->type)
            return k;
    return -1;
}

static void product_get(const struct descriptor *op, struct work *w)
{
    w->way = way_of(op);
    const struct names *names = &products[w->way];
    const struct descriptor *conv = part(op, names->convolution);
    for (int k = 0; k < 3; k++)
        tensor_get(part(op, names->tensor[k]), &w->t[k]);
    memcpy(w->pad, value_of(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)->of.whole, sizeof w->pad);
    memcpy(w->step, value_of(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)->of.whole,
           sizeof w->step);
    w->n_tensors = 3;
}

static cudnnStatus_t product_finalize(const struct descriptor *op)
{
    struct work v = {0};
    product_get(op, &v);
    const int64_t *x = v.t[X].d, *w = v.t[W].d, *y = v.t[Y].d;
    int fits = x[0] == y[0] && x[1] == w[1] && y[1] == w[0] && v.t[X].type == v.t[W].type &&
               (v.t[Y].is_virtual ? v.t[Y].type == CUDNN_DATA_FLOAT : v.t[Y].type == v.t[X].type) &&
               value_of(op, products[v.way].alpha)->of.real == 1.0f &&
               value_of(op, products[v.way].beta)->of.real == 0.0f;
    for (int k = 0; k < 2; k++)
        fits &= y[2 + k] == 1 + (x[2 + k] + 2 * v.pad[k] - w[2 + k]) / v.step[k];
    return fits ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static int same_shape(const struct tensor *a, const struct tensor *b)
{
    return memcmp(a->d, b->d, sizeof a->d) == 0 && memcmp(a->stride, b->stride, sizeof a->d) == 0;
}

/* Accepts the sum of x and a bias of each channel, or the relu of x. */
static cudnnStatus_t pointwise_finalize(const struct descriptor *op)
{
    struct tensor x, y, b;
    const struct descriptor *bias = part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    int mode =
        choice(part(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE);
    tensor_get(part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), &x);
    tensor_get(part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), &y);
    if (!same_shape(&x, &y) || (mode == CUDNN_POINTWISE_ADD) != (bias != NULL))
        return CUDNN_STATUS_BAD_PARAM;
    if (bias == NULL)
        return mode == CUDNN_POINTWISE_RELU_FWD ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    tensor_get(bias, &b);
    return b.d[0] == 1 && b.d[1] == x.d[1] && b.d[2] == 1 && b.d[3] == 1 && !b.is_virtual
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_BAD_PARAM;
}

/* Accepts a convolution, or a forward convolution with a bias and a relu after it. The tensors
 * between these operations are virtual, and the last tensor is not. */
static cudnnStatus_t graph_finalize(struct descriptor *g)
{
    const struct value *ops = value_of(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct work *w = &g->work;
    const struct descriptor *first = ops->of.pointer[0], *made;
    if (way_of(first) < 0 || (way_of(first) > 0 && ops->n > 1))
        return CUDNN_STATUS_BAD_PARAM;
    product_get(first, w);
    made = part(first, products[w->way].tensor[Y]);
    for (int k = 1; k < ops->n; k++) {
        const struct descriptor *op = ops->of.pointer[k];
        const struct descriptor *bias = part(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
        if (op->type != POINTWISE_OP || part(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC) != made ||
            !w->t[Y].is_virtual || (bias != NULL) != (k == 1))
            return CUDNN_STATUS_BAD_PARAM;
        if (bias != NULL)
            tensor_get(bias, &w->t[w->n_tensors++]);
        made = part(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
        tensor_get(made, &w->t[Y]);
        w->relu = bias == NULL;
    }
    for (int k = 0; k < w->n_tensors; k++)
        for (int j = 0; j < k; j++)
            if (w->t[j].id == w->t[k].id)
                return CUDNN_STATUS_BAD_PARAM;
    for (int k = 0; k < w->n_tensors; k++)
        if (w->t[k].is_virtual || (k < BIAS && w->t[k].type != w->t[X].type))
            return CUDNN_STATUS_BAD_PARAM;
    g->handle = value_of(g, CUDNN_ATTR_OPERATIONGRAPH_HANDLE)->of.pointer[0];
    if (is_asked("no_graph") ||
        (w->t[X].type == CUDNN_DATA_BFLOAT16 && !g->handle->handle.sees_bf16))
        return CUDNN_STATUS_NOT_SUPPORTED;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- engines ---- */

enum { NO_NOTE = -1, NEW_NOTE = 100 }; /* newer than the header */
static const int notes[N_ENGINES][2] = {
    [ENGINE_REFUSED] = {NO_NOTE, NO_NOTE},
    [ENGINE_BROKEN] = {NO_NOTE, NO_NOTE},
    [ENGINE_LARGE] = {NO_NOTE, NO_NOTE},
    [ENGINE_HALF] = {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, NO_NOTE},
    [ENGINE_SHORT] = {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, NO_NOTE},
    [ENGINE_FAILS] = {CUDNN_NUMERICAL_NOTE_WINOGRAD, NO_NOTE},
    [ENGINE_LOOSE_TC] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
    [ENGINE_TC] = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, NO_NOTE},
    [ENGINE_TC_TOO] = {CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
    [ENGINE_LOOSE] = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, NO_NOTE},
    [ENGINE_FIXED] = {NEW_NOTE, NO_NOTE},
    [ENGINE_PLAIN] = {NO_NOTE, NO_NOTE},
};

static int has_note(int engine, int note)
{
    return notes[engine][0] == note || notes[engine][1] == note;
}

static int64_t workspace_of(int engine, const struct work *w)
{
    if (engine == ENGINE_LARGE)
        return INT64_MAX / 2;
    if (engine == ENGINE_PLAIN)
        return 0;
    return tensor_elems(&w->t[Y]) * (engine + 1) + (is_asked("wide") ? EMULATION_WIDE : 0);
}

/* Returns the k-th proposal; -1: no more proposals. cuDNN has no proposal that adds a float bias to
 * bf16 tensors. */
static int proposed(const struct descriptor *heuristics, int k)
{
    const struct descriptor *g = part(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    const struct work *w = &g->work;
    if (is_asked("none") ||
        (w->n_tensors > BIAS && (is_asked("no_bias") || w->t[BIAS].type != w->t[X].type)))
        return -1;
    if (choice(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK)
        return k == 0 ? ENGINE_PLAIN : -1;
    if (k >= ENGINE_FAILS && !is_asked("fails"))
        k++;
    return k < ENGINE_PLAIN ? k : -1;
}

static cudnnStatus_t plan_finalize(const struct descriptor *plan)
{
    int engine = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
    FAULT_AS("an engine", CUDNN_STATUS_INTERNAL_ERROR);
    return engine == ENGINE_REFUSED  ? CUDNN_STATUS_NOT_SUPPORTED
           : engine == ENGINE_BROKEN ? CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED
                                     : CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t heuristics_finalize(const struct descriptor *d)
{
    int mode = choice(d, CUDNN_ATTR_ENGINEHEUR_MODE);
    if (mode != CUDNN_HEUR_MODE_A && mode != CUDNN_HEUR_MODE_FALLBACK)
        return CUDNN_STATUS_BAD_PARAM;
    return is_asked("none") ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    struct descriptor *d = descriptor;
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (d == NULL || d->is_final)
        return CUDNN_STATUS_BAD_PARAM;
    for (int k = 0; k < N_RULES; k++)
        if (rules[k].of == d->type && rules[k].least > 0 && value_of(d, rules[k].name) == NULL)
            return CUDNN_STATUS_BAD_PARAM;
    if (d->type != PLAN)
        FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    if (d->type == PACK)
        FAULT_AS("a variant pack", CUDNN_STATUS_NOT_SUPPORTED);
    if (d->type == TENSOR)
        code = tensor_finalize(d);
    else if (d->type == CONV)
        code = is_asked("no_convolution") ? CUDNN_STATUS_NOT_SUPPORTED : convolution_finalize(d);
    else if (way_of(d) >= 0)
        code = product_finalize(d);
    else if (d->type == POINTWISE_OP)
        code = pointwise_finalize(d);
    else if (d->type == GRAPH)
        code = graph_finalize(d);
    else if (d->type == HEURISTICS)
        code = heuristics_finalize(d);
    else if (d->type == PLAN)
        code = plan_finalize(d);
    else if (d->type == PACK)
        code = value_of(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n ==
                       value_of(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->n
                   ? CUDNN_STATUS_SUCCESS
                   : CUDNN_STATUS_BAD_PARAM;
    else if (d->type != POINTWISE)
        code = CUDNN_STATUS_BAD_PARAM; /* the library itself fills in these descriptors */
    d->is_final = code == CUDNN_STATUS_SUCCESS;
    return code;
}

/* ---- reading ---- */

/* Fills in a descriptor that the caller has created. */
static cudnnStatus_t fill(struct descriptor *d, cudnnBackendDescriptorType_t type, int engine,
                          struct descriptor *graph)
{
    if (d == NULL || d->type != type || d->engine >= 0)
        return CUDNN_STATUS_BAD_PARAM;
    d->engine = engine;
    d->graph = graph;
    d->is_final = 1;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t results_get(const struct descriptor *d, int64_t asked, int64_t *n, void *at)
{
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    int64_t there = 0;
    while (proposed(d, (int)there) >= 0)
        there++;
    *n = asked == 0 ? there + 3
                    /* a query without room for results yields only an upper bound, as in cuDNN */
                    : there;
    for (int64_t k = 0; k < asked && k < there && code == CUDNN_STATUS_SUCCESS; k++)
        code = fill(((cudnnBackendDescriptor_t *)at)[k], CONFIG, proposed(d, (int)k),
                    part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH));
    return code;
}

static cudnnStatus_t notes_get(const struct descriptor *d, int64_t asked, int64_t *n, void *at)
{
    cudnnBackendNumericalNote_t *to = at;
    *n = 0;
    for (int k = 0; k < 2; k++)
        if (notes[d->engine][k] != NO_NOTE && (*n)++ < asked)
            to[*n - 1] = (cudnnBackendNumericalNote_t)notes[d->engine][k];
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t asked, int64_t *n,
                                       void *at)
{
    FAULT(CUDNN_STATUS_INTERNAL_ERROR);
    const struct descriptor *d = descriptor;
    if (d == NULL || !d->is_final || asked < 0 || n == NULL || (asked > 0 && at == NULL))
        return CUDNN_STATUS_BAD_PARAM;
    if (d->type == HEURISTICS && name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return results_get(d, asked, n, at);
    if (d->type == CONFIG && name == CUDNN_ATTR_ENGINECFG_ENGINE &&
        type == CUDNN_TYPE_BACKEND_DESCRIPTOR && asked == 1) {
        *n = 1;
        return fill(*(cudnnBackendDescriptor_t *)at, ENGINE, d->engine, d->graph);
    }
    if (d->type == ENGINE && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
        type == CUDNN_TYPE_NUMERICAL_NOTE)
        return notes_get(d, asked, n, at);
    if (d->type == PLAN && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
        type == CUDNN_TYPE_INT64 && asked == 1) {
        const struct descriptor *config = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
        *n = 1;
        *(int64_t *)at = workspace_of(config->engine, &config->graph->work);
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_BAD_PARAM;
}

/* ---- running ---- */

struct call {
    struct work w;
    void *at[MOST_TENSORS], *workspace;
    int64_t workspace_bytes;
    int engine;
    double sound;
    struct emulation_work used; /* used part of the workspace */
};

/* Adds the products of one output. of: x, w and y; two of them are factors, and the third one holds
 * the sums. from: index of the output in y, of its image in x, and of its filter in w. */
static inline __attribute__((always_inline)) void
cell(const struct work *v, int way, double *const of[3], const int64_t from[3], const int64_t at[2])
{
    const struct tensor *in = &v->t[X], *filter = &v->t[W];
    double *x = of[X], *w = of[W], *y = of[Y] + from[Y];
    for (int64_t c = 0; c < filter->d[1]; c++)
        for (int64_t r = 0; r < filter->d[2]; r++)
            for (int64_t q = 0; q < filter->d[3]; q++) {
                int64_t iy = at[0] + r, ix = at[1] + q;
                if (iy < 0 || iy >= in->d[2] || ix < 0 || ix >= in->d[3])
                    continue;
                int64_t i = from[X] + c * in->stride[1] + iy * in->stride[2] + ix * in->stride[3];
                int64_t k =
                    from[W] + c * filter->stride[1] + r * filter->stride[2] + q * filter->stride[3];
                if (way == 0)
                    *y += x[i] * w[k];
                else if (way == 1)
                    w[k] += x[i] * *y;
                else
                    x[i] += w[k] * *y;
            }
}

static inline __attribute__((always_inline)) void sums_make(const struct work *v, int way,
                                                            double *const of[3])
{
    const struct tensor *y = &v->t[Y];
    for (int64_t n = 0; n < y->d[0]; n++)
        for (int64_t k = 0; k < y->d[1]; k++)
            for (int64_t p = 0; p < y->d[2]; p++)
                for (int64_t q = 0; q < y->d[3]; q++) {
                    const int64_t from[3] = {n * v->t[X].stride[0], k * v->t[W].stride[0],
                                             n * y->stride[0] + k * y->stride[1] +
                                                 p * y->stride[2] + q * y->stride[3]};
                    cell(v, way, of, from,
                         (int64_t[]){p * v->step[0] - v->pad[0], q * v->step[1] - v->pad[1]});
                }
}

/* Returns the factors of a tensor, or zeros for the tensor that holds the sums. */
static double *factors(const struct call *c, int which, int is_sum)
{
    int bits = has_note(c->engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) ? TF32_BITS : ALL_BITS;
    const struct tensor *t = &c->w.t[which];
    size_t n = (size_t)tensor_elems(t);
    double *f = calloc(n, sizeof *f);
    if (f == NULL)
        emulation_fail("no memory");
    for (size_t k = 0; k < n && !is_sum; k++)
        f[k] = emulation_factor(value_get(c->at[which], t->type, k), bits);
    return f;
}

static void graph_run(const void *args)
{
    static const int out_of[EMULATION_N_WAYS] = {Y, W, X};
    struct call c;
    memcpy(&c, args, sizeof c);
    int out = out_of[c.w.way];
    const struct tensor *t = &c.w.t[out];
    double *of[3];
    for (int k = 0; k < 3; k++)
        of[k] = factors(&c, k, k == out);
    emulation_work_check(&c.used);
    if (c.w.way == 0)
        sums_make(&c.w, 0, of);
    else if (c.w.way == 1)
        sums_make(&c.w, 1, of);
    else
        sums_make(&c.w, 2, of);
    for (int64_t k = 0; k < tensor_elems(t); k++) {
        float v = (float)(of[out][k] * c.sound);
        if (c.w.n_tensors > BIAS)
            v += value_get(c.at[BIAS], c.w.t[BIAS].type, (size_t)(k / t->stride[1] % t->d[1]));
        value_set(c.at[out], t->type, (size_t)k, c.w.relu && !(v > 0.0f) ? 0.0f : v);
    }
    for (int k = 0; k < 3; k++)
        free(of[k]);
}

static _Atomic int n_engine[N_ENGINES], n_way[EMULATION_N_WAYS], n_bias, n_relu, n_not_last;

void emulation_graphs_take(struct emulation_graphs *out)
{
    for (int k = 0; k < N_ENGINES; k++)
        out->engine[k] = atomic_exchange(&n_engine[k], 0);
    for (int k = 0; k < EMULATION_N_WAYS; k++)
        out->way[k] = atomic_exchange(&n_way[k], 0);
    out->with_bias = atomic_exchange(&n_bias, 0);
    out->with_relu = atomic_exchange(&n_relu, 0);
    out->not_last = atomic_exchange(&n_not_last, 0);
}

static void count(const struct call *c)
{
    int last = 1;
    for (int k = 0; k < c->w.n_tensors; k++)
        last &= is_last(&c->w.t[k]);
    n_engine[c->engine]++;
    n_way[c->w.way]++;
    n_bias += c->w.n_tensors > BIAS;
    n_relu += c->w.relu;
    n_not_last += !last;
}

/* Finds the tensors' memory, in the order of the tensors. */
static cudnnStatus_t pack_get(const struct descriptor *pack, struct call *c)
{
    const struct value *ids = value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct value *at = value_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    if (ids->n != c->w.n_tensors)
        return CUDNN_STATUS_BAD_PARAM;
    for (int k = 0; k < c->w.n_tensors; k++) {
        const struct tensor *t = &c->w.t[k];
        for (int j = 0; j < ids->n; j++)
            if (ids->of.whole[j] == t->id)
                c->at[k] = at->of.pointer[j];
        if (c->at[k] == NULL || (uintptr_t)c->at[k] % (uintptr_t)t->alignment != 0)
            return CUDNN_STATUS_BAD_PARAM;
        emulation_check_device("a graph's tensor", c->at[k],
                               (size_t)tensor_elems(t) * (t->type == CUDNN_DATA_FLOAT ? 4 : 2));
    }
    c->workspace = value_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->of.pointer[0];
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack)
{
    const struct descriptor *p = plan, *v = pack;
    if (p == NULL || v == NULL || p->type != PLAN || v->type != PACK || !p->is_final ||
        !v->is_final)
        return CUDNN_STATUS_BAD_PARAM;
    const struct descriptor *config = part(p, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    struct call c = {.w = config->graph->work, .engine = config->engine};
    if (value_of(p, CUDNN_ATTR_EXECUTION_PLAN_HANDLE)->of.pointer[0] != h)
        emulation_fail("a graph's plan that is another handle's");
    cudnnStatus_t code = pack_get(v, &c);
    if (code != CUDNN_STATUS_SUCCESS)
        return code;
    if (c.engine == ENGINE_HALF || c.engine == ENGINE_SHORT)
        emulation_fail("an engine that rounds more than any precision allows");
    c.workspace_bytes = workspace_of(c.engine, &c.w);
    if (c.workspace_bytes > 0)
        emulation_check_device("workspace", c.workspace, (size_t)c.workspace_bytes);
    FAULT_AS("an engine", CUDNN_STATUS_NOT_SUPPORTED);
    if (c.engine == ENGINE_FAILS || is_asked("all_fail"))
        return c.engine == ENGINE_TC ? CUDNN_STATUS_INTERNAL_ERROR : CUDNN_STATUS_NOT_SUPPORTED;
    c.sound = emulation_soundness();
    count(&c);
    emulation_work_queue(h->handle.stream, c.workspace, (size_t)c.workspace_bytes, &c.used);
    return emulation_dnn_do(__func__, h, graph_run, &c, sizeof c);
}
