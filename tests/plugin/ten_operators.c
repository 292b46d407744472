/* An example of a backend in a library of its own: ten operators in float32, in C99. All others are decomposed, or run
 * on the host (docs/interop/plugins.md). With -DTEN_DEVICE the same kernels work in "device" memory: addresses that the
 * host cannot read. */
#define _POSIX_C_SOURCE 200112L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxtrain_plugin.h"

#define MAX_RANK 16

#ifdef TEN_DEVICE
#define NAME "ten_device"
/* No address of a process has this bit. */
#define DEVICE_BIT ((uintptr_t)1 << 62)
#else
#define NAME "ten"
#define DEVICE_BIT ((uintptr_t)0)
#endif

static float* at(const void* address) { return (float*)((uintptr_t)address - DEVICE_BIT); }

/* ---- Shapes ---- */

static const OnnxtrainAttribute* find(const OnnxtrainNode* node, const char* name) {
  for (size_t i = 0; i < node->num_attributes; ++i) {
    if (strcmp(node->attributes[i].name, name) == 0) return &node->attributes[i];
  }
  return NULL;
}

static int64_t count(const OnnxtrainTensorType* type) {
  int64_t n = 1;
  for (int32_t i = 0; i < type->rank; ++i) n *= type->shape[i];
  return n;
}

/* Strides in elements of a dense row-major tensor. */
static void strides(const OnnxtrainTensorType* type, int64_t* s) {
  int64_t step = 1;
  for (int32_t i = type->rank - 1; i >= 0; --i) {
    s[i] = step;
    step *= type->shape[i];
  }
}

/* Strides of `x` along the axes of `y`, to which it is broadcast: 0 where it is repeated. */
static void broadcast_strides(const OnnxtrainTensorType* x, const OnnxtrainTensorType* y, int64_t* s) {
  int64_t own[MAX_RANK];
  strides(x, own);
  for (int32_t i = 0; i < y->rank; ++i) {
    const int32_t axis = i - (y->rank - x->rank);
    s[i] = axis < 0 || x->shape[axis] == 1 ? 0 : own[axis];
  }
}

/* ---- Kernels ----
 * A walk visits the elements of a tensor of `shape` in order; `a` and `b` are the offsets of its operands. */

typedef struct Kernel Kernel;
typedef float (*Function)(float a, float b);
struct Kernel {
  int32_t rank;
  int64_t shape[MAX_RANK], a[MAX_RANK], b[MAX_RANK];
  Function f;
  int64_t m, n, k;        /* of a product */
  int64_t ai, ak, bk, bj; /* strides of its operands within a matrix */
  int64_t out;            /* elements of the output */
};

static int64_t visits(const Kernel* k) {
  int64_t n = 1;
  for (int32_t i = 0; i < k->rank; ++i) n *= k->shape[i];
  return n;
}

/* Moves the offsets to the next element. */
static void advance(const Kernel* k, int64_t* index, int64_t* a, int64_t* b) {
  for (int32_t i = k->rank - 1; i >= 0; --i) {
    *a += k->a[i];
    *b += k->b[i];
    if (++index[i] < k->shape[i]) return;
    *a -= k->a[i] * k->shape[i];
    *b -= k->b[i] * k->shape[i];
    index[i] = 0;
  }
}

static int run_elementwise(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message) {
  const Kernel* k = state;
  const float *x = at(args->inputs[0]), *z = at(args->inputs[1]);
  float* y = at(args->outputs[0]);
  int64_t index[MAX_RANK] = {0}, a = 0, b = 0;
  (void)message;
  for (int64_t i = 0, n = visits(k); i < n; ++i) {
    y[i] = k->f(x[a], z[b]);
    advance(k, index, &a, &b);
  }
  return ONNXTRAIN_PLUGIN_OK;
}

static int run_unary(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message) {
  const Kernel* k = state;
  const float* x = at(args->inputs[0]);
  float* y = at(args->outputs[0]);
  int64_t index[MAX_RANK] = {0}, a = 0, b = 0;
  (void)message;
  for (int64_t i = 0, n = visits(k); i < n; ++i) {
    y[i] = k->f(x[a], 0);
    advance(k, index, &a, &b);
  }
  return ONNXTRAIN_PLUGIN_OK;
}

/* Walks over the input; `b` is the place in the output. Sums in double, in the workspace. */
static int run_sum(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message) {
  const Kernel* k = state;
  const float* x = at(args->inputs[0]);
  float* y = at(args->outputs[0]);
  double* sums = (double*)(void*)at(args->workspace);
  int64_t index[MAX_RANK] = {0}, a = 0, b = 0;
  (void)message;
  for (int64_t i = 0; i < k->out; ++i) sums[i] = 0;
  for (int64_t i = 0, n = visits(k); i < n; ++i) {
    sums[b] += x[a];
    advance(k, index, &a, &b);
  }
  for (int64_t i = 0; i < k->out; ++i) y[i] = (float)sums[i];
  return ONNXTRAIN_PLUGIN_OK;
}

/* Walks over the matrices of a batch. */
static int run_product(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message) {
  const Kernel* k = state;
  const float *x = at(args->inputs[0]), *w = at(args->inputs[1]);
  float* y = at(args->outputs[0]);
  int64_t index[MAX_RANK] = {0}, a = 0, b = 0;
  (void)message;
  for (int64_t matrix = 0, n = visits(k); matrix < n; ++matrix) {
    for (int64_t i = 0; i < k->m; ++i) {
      for (int64_t j = 0; j < k->n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < k->k; ++l) sum += (double)x[a + i * k->ai + l * k->ak] * w[b + l * k->bk + j * k->bj];
        *y++ = (float)sum;
      }
    }
    advance(k, index, &a, &b);
  }
  return ONNXTRAIN_PLUGIN_OK;
}

/* ---- Preparing ---- */

static float add(float a, float b) { return a + b; }
static float sub(float a, float b) { return a - b; }
static float mul(float a, float b) { return a * b; }
static float divide(float a, float b) { return a / b; }
static float negate(float a, float b) { return (void)b, -a; }
static float exponential(float a, float b) { return (void)b, expf(a); }
static float relu(float a, float b) { return (void)b, a < 0 ? 0 : a; } /* keeps NaN */
static float same(float a, float b) { return (void)b, a; }

static void set_walk(Kernel* k, const OnnxtrainTensorType* over) {
  k->rank = over->rank;
  memcpy(k->shape, over->shape, sizeof(int64_t) * (size_t)over->rank);
}

static size_t prepare_elementwise(Kernel* k, const OnnxtrainNode* node) {
  set_walk(k, node->outputs[0].type);
  broadcast_strides(node->inputs[0].type, node->outputs[0].type, k->a);
  if (node->num_inputs > 1) broadcast_strides(node->inputs[1].type, node->outputs[0].type, k->b);
  return 0;
}

static size_t prepare_transpose(Kernel* k, const OnnxtrainNode* node) {
  const OnnxtrainAttribute* perm = find(node, "perm");
  int64_t s[MAX_RANK];
  set_walk(k, node->outputs[0].type);
  strides(node->inputs[0].type, s);
  for (int32_t i = 0; i < k->rank; ++i) k->a[i] = s[perm->ints[i]];
  return 0;
}

static int is_reduced(const OnnxtrainAttribute* axes, int32_t axis) {
  if (axes->count == 0) return 1;
  for (size_t i = 0; i < axes->count; ++i) {
    if (axes->ints[i] == axis) return 1;
  }
  return 0;
}

static size_t prepare_sum(Kernel* k, const OnnxtrainNode* node) {
  const OnnxtrainTensorType* x = node->inputs[0].type;
  const OnnxtrainAttribute* axes = find(node, "axes");
  int64_t step = 1;
  set_walk(k, x);
  strides(x, k->a);
  for (int32_t i = x->rank - 1; i >= 0; --i) {
    k->b[i] = is_reduced(axes, i) ? 0 : step;
    if (!is_reduced(axes, i)) step *= x->shape[i];
  }
  k->out = count(node->outputs[0].type);
  return sizeof(double) * (size_t)k->out;
}

/* The matrices of an operand: their strides, and those of the batch along the output's axes. */
static void split_operand(const OnnxtrainTensorType* x, const OnnxtrainTensorType* y, int64_t trans, int64_t* batch,
                          int64_t* row, int64_t* column) {
  int64_t s[MAX_RANK], all[MAX_RANK];
  strides(x, s);
  broadcast_strides(x, y, all); /* the last two mean nothing */
  memcpy(batch, all, sizeof(int64_t) * (size_t)(y->rank - 2));
  *row = s[x->rank - (trans ? 1 : 2)];
  *column = s[x->rank - (trans ? 2 : 1)];
}

static size_t prepare_product(Kernel* k, const OnnxtrainNode* node) {
  const OnnxtrainTensorType *x = node->inputs[0].type, *w = node->inputs[1].type, *y = node->outputs[0].type;
  const int64_t trans_a = find(node, "trans_a")->i, trans_b = find(node, "trans_b")->i;
  k->rank = y->rank - 2;
  memcpy(k->shape, y->shape, sizeof(int64_t) * (size_t)k->rank);
  split_operand(x, y, trans_a, k->a, &k->ai, &k->ak);
  split_operand(w, y, trans_b, k->b, &k->bk, &k->bj);
  k->m = y->shape[y->rank - 2];
  k->n = y->shape[y->rank - 1];
  k->k = x->shape[x->rank - (trans_a ? 2 : 1)];
  return 0;
}

typedef struct Row {
  const char* op;
  Function f;
  size_t (*prepare)(Kernel* k, const OnnxtrainNode* node); /* returns the bytes of the workspace */
  int (*run)(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message);
} Row;

static const Row rows[] = {
    {"Add", add, prepare_elementwise, run_elementwise}, {"Sub", sub, prepare_elementwise, run_elementwise},
    {"Mul", mul, prepare_elementwise, run_elementwise}, {"Div", divide, prepare_elementwise, run_elementwise},
    {"Neg", negate, prepare_elementwise, run_unary},    {"Exp", exponential, prepare_elementwise, run_unary},
    {"Relu", relu, prepare_elementwise, run_unary},     {"Transpose", same, prepare_transpose, run_unary},
    {"ReduceSum", NULL, prepare_sum, run_sum},          {"MatMul", NULL, prepare_product, run_product},
};

static const Row* find_row(const char* op) {
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (strcmp(rows[i].op, op) == 0) return &rows[i];
  }
  return NULL;
}

/* ---- The backend ---- */

static int create(const OnnxtrainBackendOptions* options, void** backend, OnnxtrainMessage* message) {
  if (strcmp(options->device, "auto") != 0 && strcmp(options->device, "cpu") != 0 &&
      strcmp(options->device, NAME) != 0) {
    snprintf(message->text, message->size, "there is no device '%s'", options->device);
    return ONNXTRAIN_PLUGIN_INVALID;
  }
  *backend = NULL; /* it has no state */
  return ONNXTRAIN_PLUGIN_OK;
}

static void destroy(void* backend) { (void)backend; }

static void describe(void* backend, OnnxtrainMessage* line) {
  (void)backend;
  snprintf(line->text, line->size, "ten operators in C");
}

static int is_float(const OnnxtrainOperand* operand) {
  return operand->type != NULL && operand->type->element == ONNXTRAIN_ELEMENT_FLOAT32;
}

static int supports(void* backend, const OnnxtrainNode* node) {
  (void)backend;
  for (size_t i = 0; i < node->num_inputs; ++i) {
    if (!is_float(&node->inputs[i])) return 0;
  }
  return find_row(node->op) != NULL && is_float(&node->outputs[0]);
}

static int prepare(void* backend, const OnnxtrainGraph* graph, size_t node, OnnxtrainKernel* kernel,
                   OnnxtrainMessage* message) {
  const Row* row = find_row(graph->nodes[node].op);
  Kernel* k = calloc(1, sizeof(Kernel));
  (void)backend;
  if (k == NULL) {
    snprintf(message->text, message->size, "no memory for a kernel");
    return ONNXTRAIN_PLUGIN_OUT_OF_MEMORY;
  }
  k->f = row->f;
  kernel->workspace = row->prepare(k, &graph->nodes[node]);
  kernel->state = k;
  kernel->run = row->run;
  kernel->release = free;
  return ONNXTRAIN_PLUGIN_OK;
}

#ifdef TEN_DEVICE
static int allocate(void* backend, size_t bytes, void** address, OnnxtrainMessage* message) {
  const size_t rounded = (bytes + 63) / 64 * 64;
  void* memory = NULL;
  (void)backend;
  if (posix_memalign(&memory, 64, rounded == 0 ? 64 : rounded) != 0) {
    snprintf(message->text, message->size, "no memory on the device");
    return ONNXTRAIN_PLUGIN_OUT_OF_MEMORY;
  }
  memset(memory, 0, rounded);
  *address = (void*)((uintptr_t)memory + DEVICE_BIT);
  return ONNXTRAIN_PLUGIN_OK;
}

static void deallocate(void* backend, void* address) {
  (void)backend;
  free(at(address));
}

static int copy(void* backend, void* to, const void* from, size_t bytes, OnnxtrainCopy direction,
                OnnxtrainMessage* message) {
  (void)backend;
  (void)message;
  memmove(direction == ONNXTRAIN_COPY_TO_HOST ? to : at(to), direction == ONNXTRAIN_COPY_TO_DEVICE ? from : at(from),
          bytes);
  return ONNXTRAIN_PLUGIN_OK;
}

static int synchronize(void* backend, OnnxtrainMessage* message) {
  (void)backend;
  (void)message;
  return ONNXTRAIN_PLUGIN_OK;
}

static size_t free_memory(void* backend) {
  (void)backend;
  return (size_t)1 << 30;
}
#endif

const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version) {
  static const OnnxtrainBackendApi api = {
      .version = ONNXTRAIN_PLUGIN_VERSION,
      .struct_size = sizeof(OnnxtrainBackendApi),
      .name = NAME,
      .create = create,
      .destroy = destroy,
      .describe = describe,
      .supports = supports,
      .prepare = prepare,
#ifdef TEN_DEVICE
      .allocate = allocate,
      .deallocate = deallocate,
      .copy = copy,
      .synchronize = synchronize,
      .free_memory = free_memory,
#endif
  };
  return version == ONNXTRAIN_PLUGIN_VERSION ? &api : NULL;
}
