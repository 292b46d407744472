/* An example of operators of another domain in a library of its own, in C99 (docs/interop/plugins.md):
 *
 *   example.Saturate      y = x²/(s² + x²), attribute `scale` (s); a kernel, whose gradient is another kernel
 *   example.SaturateGrad  dy, x → dx
 *   example.Cube          y = x³; a kernel, whose gradient is a formula
 *   example.Blend         y = a·w + b·(1 − w); a decomposition, and so is its gradient
 *   example.Sign          y = sign(x); its gradient is zero
 *   example.Fails         a kernel that fails when it runs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxtrain_plugin.h"

static int64_t count(const OnnxtrainTensorType* type) {
  int64_t n = 1;
  for (int32_t i = 0; i < type->rank; ++i) n *= type->shape[i];
  return n;
}

static double number(const OnnxtrainNode* node, const char* name) {
  for (size_t i = 0; i < node->num_attributes; ++i) {
    if (strcmp(node->attributes[i].name, name) == 0) return node->attributes[i].f;
  }
  return 0;
}

static int set_like(const OnnxtrainTensorType* type, OnnxtrainResultType* result, OnnxtrainMessage* message) {
  if (type->rank > ONNXTRAIN_MAX_RANK) {
    snprintf(message->text, message->size, "has %d axes, at most %d are supported", type->rank, ONNXTRAIN_MAX_RANK);
    return ONNXTRAIN_PLUGIN_UNSUPPORTED;
  }
  result->element = type->element;
  result->rank = type->rank;
  memcpy(result->shape, type->shape, sizeof(int64_t) * (size_t)type->rank);
  return ONNXTRAIN_PLUGIN_OK;
}

/* All inputs are floats of one type, and so is the output. */
static int infer_same(const OnnxtrainNode* node, OnnxtrainResultType* outputs, OnnxtrainMessage* message) {
  const OnnxtrainTensorType* x = node->inputs[0].type;
  if (x->element != ONNXTRAIN_ELEMENT_FLOAT32 && x->element != ONNXTRAIN_ELEMENT_FLOAT64) {
    snprintf(message->text, message->size, "element type %d is no float32", x->element);
    return ONNXTRAIN_PLUGIN_INVALID;
  }
  for (size_t i = 1; i < node->num_inputs; ++i) {
    const OnnxtrainTensorType* other = node->inputs[i].type;
    if (other->element != x->element || other->rank != x->rank ||
        memcmp(other->shape, x->shape, sizeof(int64_t) * (size_t)x->rank) != 0) {
      snprintf(message->text, message->size, "input %d has not the type of input 0", (int)i);
      return ONNXTRAIN_PLUGIN_INVALID;
    }
  }
  return set_like(x, &outputs[0], message);
}

/* ---- Kernels: a function of the elements of one or two inputs, in float32 and float64 ---- */

typedef double (*Function)(double a, double b, double scale);

typedef struct Kernel {
  Function f;
  int64_t count;
  double scale;
  int is_double, operands;
} Kernel;

static int run_elements(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message) {
  const Kernel* k = state;
  const void *a = args->inputs[0], *b = args->inputs[k->operands - 1];
  (void)message;
  for (int64_t i = 0; i < k->count; ++i) {
    if (k->is_double) {
      ((double*)args->outputs[0])[i] = k->f(((const double*)a)[i], ((const double*)b)[i], k->scale);
    } else {
      ((float*)args->outputs[0])[i] = (float)k->f(((const float*)a)[i], ((const float*)b)[i], k->scale);
    }
  }
  return ONNXTRAIN_PLUGIN_OK;
}

static int supports_reals(const OnnxtrainNode* node) {
  const int32_t element = node->inputs[0].type->element;
  return element == ONNXTRAIN_ELEMENT_FLOAT32 || element == ONNXTRAIN_ELEMENT_FLOAT64;
}

static int prepare_elements(const OnnxtrainNode* node, OnnxtrainKernel* kernel, Function f) {
  Kernel* k = calloc(1, sizeof(Kernel));
  if (k == NULL) return ONNXTRAIN_PLUGIN_OUT_OF_MEMORY;
  k->f = f;
  k->count = count(node->outputs[0].type);
  k->scale = number(node, "scale");
  k->is_double = node->inputs[0].type->element == ONNXTRAIN_ELEMENT_FLOAT64;
  k->operands = (int)node->num_inputs;
  kernel->state = k;
  kernel->run = run_elements;
  kernel->release = free;
  return ONNXTRAIN_PLUGIN_OK;
}

static double saturate(double x, double unused, double s) { return (void)unused, x * x / (s * s + x * x); }
static double saturate_grad(double dy, double x, double s) {
  const double d = s * s + x * x;
  return dy * 2 * x * s * s / (d * d);
}
static double cube(double x, double unused, double s) { return (void)unused, (void)s, x * x * x; }
static double sign(double x, double unused, double s) { return (void)unused, (void)s, x > 0 ? 1 : x < 0 ? -1 : 0; }

static int prepare_saturate(const OnnxtrainNode* node, OnnxtrainKernel* kernel, OnnxtrainMessage* message) {
  return (void)message, prepare_elements(node, kernel, saturate);
}
static int prepare_saturate_grad(const OnnxtrainNode* node, OnnxtrainKernel* kernel, OnnxtrainMessage* message) {
  return (void)message, prepare_elements(node, kernel, saturate_grad);
}
static int prepare_cube(const OnnxtrainNode* node, OnnxtrainKernel* kernel, OnnxtrainMessage* message) {
  return (void)message, prepare_elements(node, kernel, cube);
}
static int prepare_sign(const OnnxtrainNode* node, OnnxtrainKernel* kernel, OnnxtrainMessage* message) {
  return (void)message, prepare_elements(node, kernel, sign);
}

static int run_failing(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message) {
  (void)state;
  (void)args;
  snprintf(message->text, message->size, "the device is on fire");
  return ONNXTRAIN_PLUGIN_UNAVAILABLE;
}
static int prepare_failing(const OnnxtrainNode* node, OnnxtrainKernel* kernel, OnnxtrainMessage* message) {
  (void)node;
  (void)message;
  kernel->run = run_failing;
  return ONNXTRAIN_PLUGIN_OK;
}

/* ---- Gradients and decompositions: nodes of ai.onnx, opset 18, or of this domain ---- */

static int binary(const OnnxtrainBuildArgs* c, const char* op, int32_t a, int32_t b, int32_t* y) {
  const int32_t inputs[2] = {a, b};
  return c->api->node(c->builder, "", op, inputs, 2, NULL, 0, y, 1);
}

static int saturate_gradient(const OnnxtrainBuildArgs* c, int32_t* input_grads, OnnxtrainMessage* message) {
  const int32_t inputs[2] = {c->output_grads[0], c->inputs[0]};
  const OnnxtrainAttribute scale = {.name = "scale", .kind = ONNXTRAIN_ATTRIBUTE_FLOAT, .f = number(c->node, "scale")};
  (void)message;
  return c->api->node(c->builder, "example", "SaturateGrad", inputs, 2, &scale, 1, &input_grads[0], 1);
}

/* 3·x²·dy */
static int cube_gradient(const OnnxtrainBuildArgs* c, int32_t* input_grads, OnnxtrainMessage* message) {
  int32_t three, square, slope;
  (void)message;
  c->api->scalar(c->builder, 3, c->inputs[0], &three);
  if (binary(c, "Mul", c->inputs[0], c->inputs[0], &square) != 0) return ONNXTRAIN_PLUGIN_INVALID;
  if (binary(c, "Mul", square, three, &slope) != 0) return ONNXTRAIN_PLUGIN_INVALID;
  return binary(c, "Mul", slope, c->output_grads[0], &input_grads[0]);
}

/* b + (a − b)·w */
static int blend(const OnnxtrainBuildArgs* c, int32_t* outputs, OnnxtrainMessage* message) {
  int32_t difference, part;
  (void)message;
  if (binary(c, "Sub", c->inputs[0], c->inputs[1], &difference) != 0) return ONNXTRAIN_PLUGIN_INVALID;
  if (binary(c, "Mul", difference, c->inputs[2], &part) != 0) return ONNXTRAIN_PLUGIN_INVALID;
  return binary(c, "Add", c->inputs[1], part, &outputs[0]);
}

/* a and b have one type; w is a vector of their last axis. */
static int infer_blend(const OnnxtrainNode* node, OnnxtrainResultType* outputs, OnnxtrainMessage* message) {
  const OnnxtrainTensorType *a = node->inputs[0].type, *w = node->inputs[2].type;
  if (a->rank < 1 || w->rank != 1 || w->shape[0] != a->shape[a->rank - 1]) {
    snprintf(message->text, message->size, "weights should be a vector of the last axis");
    return ONNXTRAIN_PLUGIN_INVALID;
  }
  return set_like(a, &outputs[0], message);
}

const OnnxtrainOperatorsApi* OnnxtrainGetOperators(uint32_t version) {
  static const OnnxtrainAttribute scale = {.name = "scale", .kind = ONNXTRAIN_ATTRIBUTE_FLOAT, .f = 1};
  static const OnnxtrainOperator operators[] = {
      {.domain = "example",
       .name = "Saturate",
       .min_inputs = 1,
       .max_inputs = 1,
       .num_outputs = 1,
       .flags = ONNXTRAIN_OPERATOR_ELEMENTWISE,
       .attributes = &scale,
       .num_attributes = 1,
       .infer = infer_same,
       .gradient = saturate_gradient,
       .supports = supports_reals,
       .prepare = prepare_saturate},
      {.domain = "example",
       .name = "SaturateGrad",
       .min_inputs = 2,
       .max_inputs = 2,
       .num_outputs = 1,
       .flags = ONNXTRAIN_OPERATOR_ELEMENTWISE,
       .attributes = &scale,
       .num_attributes = 1,
       .infer = infer_same,
       .supports = supports_reals,
       .prepare = prepare_saturate_grad},
      {.domain = "example",
       .name = "Cube",
       .min_inputs = 1,
       .max_inputs = 1,
       .num_outputs = 1,
       .infer = infer_same,
       .gradient = cube_gradient,
       .prepare = prepare_cube},
      {.domain = "example",
       .name = "Blend",
       .min_inputs = 3,
       .max_inputs = 3,
       .num_outputs = 1,
       .infer = infer_blend,
       .decompose = blend},
      {.domain = "example",
       .name = "Sign",
       .min_inputs = 1,
       .max_inputs = 1,
       .num_outputs = 1,
       .flags = ONNXTRAIN_OPERATOR_ZERO_GRADIENT,
       .infer = infer_same,
       .supports = supports_reals,
       .prepare = prepare_sign},
      {.domain = "example",
       .name = "Fails",
       .min_inputs = 1,
       .max_inputs = 1,
       .num_outputs = 1,
       .infer = infer_same,
       .gradient = cube_gradient,
       .prepare = prepare_failing},
  };
  static const OnnxtrainOperatorsApi api = {.version = ONNXTRAIN_PLUGIN_VERSION,
                                            .struct_size = sizeof(OnnxtrainOperatorsApi),
                                            .operators = operators,
                                            .num_operators = sizeof(operators) / sizeof(operators[0])};
  return version == ONNXTRAIN_PLUGIN_VERSION ? &api : NULL;
}
