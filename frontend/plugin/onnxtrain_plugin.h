/* What a library of another party tells onnxtrain: a backend that runs graphs, or operators of other domains. C99.
 *
 * A library is loaded by its path, `--backend path/libX.so` or `--plugin path/libX.so` (the fields `backend` and
 * `plugin` of the configuration), and exports one or both of
 *
 *   const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version);
 *   const OnnxtrainOperatorsApi* OnnxtrainGetOperators(uint32_t version);
 *
 * `version` is the one that onnxtrain was built with. The library returns a table whose `version` it was built with, or
 * null where it cannot serve. onnxtrain refuses tables of another version. Libraries are never unloaded; tables and the
 * texts in them stay valid for ever.
 *
 * Results. Functions that return int return 0, or a code of OnnxtrainPluginCode; they then may write one line of UTF-8
 * to message->text, at most message->size bytes with the final zero. No exception may leave a function.
 *
 * Ownership. What a function is handed belongs to onnxtrain and is valid until it returns, unless it says otherwise.
 *
 * Threads. Functions of one backend are called by one thread at a time, but not always by the same; different backends
 * of one library work at the same time. Functions of operators are called by several threads at the same time, but
 * those of one kernel by one.
 *
 * docs/interop/plugins.md shows how such libraries are written.
 */
#ifndef ONNXTRAIN_PLUGIN_H_
#define ONNXTRAIN_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONNXTRAIN_PLUGIN_VERSION 1

/* NOLINTBEGIN(readability-identifier-naming): names as C libraries have them */

typedef enum OnnxtrainPluginCode {
  ONNXTRAIN_PLUGIN_OK = 0,
  ONNXTRAIN_PLUGIN_INVALID = 1, /* what the user asked for is wrong */
  ONNXTRAIN_PLUGIN_UNSUPPORTED = 3,
  ONNXTRAIN_PLUGIN_OUT_OF_MEMORY = 4,
  ONNXTRAIN_PLUGIN_UNAVAILABLE = 7, /* a device or file failed */
  ONNXTRAIN_PLUGIN_INTERNAL = 8     /* a fault of the library; any other number counts as this one */
} OnnxtrainPluginCode;

typedef struct OnnxtrainMessage {
  char* text;
  size_t size;
} OnnxtrainMessage;

/* Element types, with the numbers of ONNX (TensorProto.DataType). Types that are not listed occur, too: a library
 * supports what it knows. */
typedef enum OnnxtrainElement {
  ONNXTRAIN_ELEMENT_FLOAT32 = 1,
  ONNXTRAIN_ELEMENT_UINT8 = 2,
  ONNXTRAIN_ELEMENT_INT8 = 3,
  ONNXTRAIN_ELEMENT_UINT16 = 4,
  ONNXTRAIN_ELEMENT_INT16 = 5,
  ONNXTRAIN_ELEMENT_INT32 = 6,
  ONNXTRAIN_ELEMENT_INT64 = 7,
  ONNXTRAIN_ELEMENT_BOOL = 9, /* one byte, 0 or 1 */
  ONNXTRAIN_ELEMENT_FLOAT16 = 10,
  ONNXTRAIN_ELEMENT_FLOAT64 = 11,
  ONNXTRAIN_ELEMENT_UINT32 = 12,
  ONNXTRAIN_ELEMENT_UINT64 = 13,
  ONNXTRAIN_ELEMENT_BFLOAT16 = 16
} OnnxtrainElement;

/* The type of a dense row-major tensor. */
typedef struct OnnxtrainTensorType {
  int32_t element; /* of OnnxtrainElement */
  int32_t rank;
  const int64_t* shape; /* `rank` extents */
  size_t bytes;
} OnnxtrainTensorType;

/* An input or output of a node. */
typedef struct OnnxtrainOperand {
  const OnnxtrainTensorType* type; /* null: an absent optional input */
  const void* constant;            /* the elements, in host memory, where they are the same in every run; else null */
  int32_t value;                   /* its number in the graph; -1: an absent input */
} OnnxtrainOperand;

typedef enum OnnxtrainAttributeKind {
  ONNXTRAIN_ATTRIBUTE_INT = 0,
  ONNXTRAIN_ATTRIBUTE_FLOAT = 1,
  ONNXTRAIN_ATTRIBUTE_STRING = 2,
  ONNXTRAIN_ATTRIBUTE_INTS = 3,
  ONNXTRAIN_ATTRIBUTE_FLOATS = 4,
  ONNXTRAIN_ATTRIBUTE_TENSOR = 5
} OnnxtrainAttributeKind;

typedef struct OnnxtrainAttribute {
  const char* name;
  int32_t kind; /* of OnnxtrainAttributeKind: which of the fields below counts */
  int64_t i;
  double f;
  const char* s;
  size_t count; /* of ints or floats */
  const int64_t* ints;
  const double* floats;
  const OnnxtrainTensorType* type; /* of the tensor, and its elements */
  const void* data;
} OnnxtrainAttribute;

typedef struct OnnxtrainNode {
  const char* op;     /* of frontend/ops/README.md, "Conv"; of another domain: "my.domain.Op" */
  const char* source; /* the ONNX node it came from, for messages; may be "" */
  size_t num_inputs, num_outputs, num_attributes;
  const OnnxtrainOperand* inputs;
  const OnnxtrainOperand* outputs;
  const OnnxtrainAttribute* attributes; /* all that the operator has, by name */
} OnnxtrainNode;

/* The nodes of a program, each after those that it reads from. Two operands are one tensor where their `value` is. */
typedef struct OnnxtrainGraph {
  size_t num_nodes;
  const OnnxtrainNode* nodes;
} OnnxtrainGraph;

/* The addresses of one run, by input and output of the node: 64-byte aligned, dense, row-major. Null for absent inputs,
 * for unused outputs, and for tensors without elements. */
typedef struct OnnxtrainKernelArgs {
  const void* const* inputs;
  void* const* outputs;
  void* workspace; /* as many bytes as prepare asked for; null where it asked for none */
} OnnxtrainKernelArgs;

/* A kernel: a node that is prepared once, when a program is compiled, and run once per step. `run` neither allocates
 * nor waits for a device. An output of an elementwise operator may lie where an input of its type lies: each element is
 * read before it is written. No other output overlaps an input or output. */
typedef struct OnnxtrainKernel {
  void* state;
  int (*run)(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message);
  void (*release)(void* state); /* may be null */
  size_t workspace;             /* bytes */
} OnnxtrainKernel;

/* ---- Backends ---- */

typedef struct OnnxtrainBackendOptions {
  const char* device; /* as the user named it, "auto" where not */
  int32_t threads;    /* at most; 0: as the library likes */
} OnnxtrainBackendOptions;

typedef enum OnnxtrainCopy {
  ONNXTRAIN_COPY_TO_DEVICE = 0,
  ONNXTRAIN_COPY_TO_HOST = 1,
  ONNXTRAIN_COPY_ON_DEVICE = 2
} OnnxtrainCopy;

/* The table of a backend. onnxtrain plans memory, chooses the order of the nodes and hands over one node after the
 * other. A node that the library does not support is decomposed; what has no decomposition runs in the memory of the
 * host, by onnxtrain's own backend `cpu`, between copies where the library has memory of its own. */
typedef struct OnnxtrainBackendApi {
  uint32_t version;     /* ONNXTRAIN_PLUGIN_VERSION */
  uint32_t struct_size; /* sizeof(OnnxtrainBackendApi) */
  const char* name;     /* one word, for start page, summary and messages */

  int (*create)(const OnnxtrainBackendOptions* options, void** backend, OnnxtrainMessage* message);
  void (*destroy)(void* backend);
  /* Writes one line about versions and devices. May be null. */
  void (*describe)(void* backend, OnnxtrainMessage* line);

  /* Returns 1 where there is a kernel for the node, with its element types and attributes; else 0. */
  int (*supports)(void* backend, const OnnxtrainNode* node);
  /* Prepares nodes[node] of a graph, which it supports. The graph is valid until all kernels of it were released. */
  int (*prepare)(void* backend, const OnnxtrainGraph* graph, size_t node, OnnxtrainKernel* kernel,
                 OnnxtrainMessage* message);

  /* Memory of a device: all five, or all null for kernels that work in the memory of the host. Addresses are those of a
   * flat space: an address plus an offset is one, too. `allocate` returns memory of zeros that is 64-byte aligned.
   * Kernels and copies take effect in the order of the calls; copies to and from the host have finished on return. */
  int (*allocate)(void* backend, size_t bytes, void** address, OnnxtrainMessage* message);
  void (*deallocate)(void* backend, void* address);
  int (*copy)(void* backend, void* to, const void* from, size_t bytes, OnnxtrainCopy direction,
              OnnxtrainMessage* message);
  int (*synchronize)(void* backend, OnnxtrainMessage* message); /* waits for all that was started */
  size_t (*free_memory)(void* backend);                         /* bytes that allocate can return */
} OnnxtrainBackendApi;

typedef const OnnxtrainBackendApi* (*OnnxtrainGetBackendFn)(uint32_t version);

/* ---- Operators ---- */

/* Appends nodes to a graph, in gradients and decompositions. Values are numbers; -1 is an absent one. After a failure
 * every further call fails, too, and onnxtrain reports the first. */
typedef struct OnnxtrainBuilder OnnxtrainBuilder;
typedef struct OnnxtrainBuilderApi {
  /* Appends an operator of ai.onnx, opset 18 (`domain` ""), or of another domain that is known. Stores the first
   * `num_outputs` outputs. Of an attribute only `name`, `kind` and the fields of the kind count. */
  int (*node)(OnnxtrainBuilder* builder, const char* domain, const char* op, const int32_t* inputs, size_t num_inputs,
              const OnnxtrainAttribute* attributes, size_t num_attributes, int32_t* outputs, size_t num_outputs);
  /* Stores a constant with these elements, which are copied. */
  int (*constant)(OnnxtrainBuilder* builder, const OnnxtrainTensorType* type, const void* data, int32_t* value);
  /* Stores a scalar of the element type of `like`. */
  int (*scalar)(OnnxtrainBuilder* builder, double number, int32_t like, int32_t* value);
} OnnxtrainBuilderApi;

/* The node that is differentiated or decomposed, and its values by input and output. */
typedef struct OnnxtrainBuildArgs {
  const OnnxtrainBuilderApi* api;
  OnnxtrainBuilder* builder;
  const OnnxtrainNode* node; /* of its operands, only type and constant count */
  const int32_t* inputs;
  const int32_t* outputs;      /* null in a decomposition */
  const int32_t* output_grads; /* -1 where no gradient arrives; null in a decomposition */
} OnnxtrainBuildArgs;

#define ONNXTRAIN_MAX_RANK 16

typedef struct OnnxtrainResultType {
  int32_t element;
  int32_t rank;
  int64_t shape[ONNXTRAIN_MAX_RANK];
} OnnxtrainResultType;

enum OnnxtrainOperatorFlags {
  /* Every output element is a function of the input elements at its place (after broadcasting). */
  ONNXTRAIN_OPERATOR_ELEMENTWISE = 1,
  /* Piecewise constant: the gradient is zero. Without this, a gradient or a decomposition the operator cannot be
   * trained through. */
  ONNXTRAIN_OPERATOR_ZERO_GRADIENT = 2
};

typedef struct OnnxtrainOperator {
  const char* domain; /* not "", and none of onnxtrain's own */
  const char* name;
  int32_t min_inputs, max_inputs; /* max_inputs -1: any number */
  int32_t num_outputs;
  uint32_t flags; /* of OnnxtrainOperatorFlags */
  /* Attributes: name, kind, and the value where a node does not have it. The first `num_required` have no default. A
   * node with another attribute is refused. */
  const OnnxtrainAttribute* attributes;
  size_t num_attributes, num_required;

  /* Type rule: stores the types of all outputs, or tells what is wrong. May be null beside a decomposition. */
  int (*infer)(const OnnxtrainNode* node, OnnxtrainResultType* outputs, OnnxtrainMessage* message);
  /* A model is imported with these nodes in place of the operator, and the gradient is theirs. Stores the values of all
   * outputs. Null: there is a kernel. */
  int (*decompose)(const OnnxtrainBuildArgs* args, int32_t* outputs, OnnxtrainMessage* message);
  /* Stores the gradient of each input, -1 for none. Null: as `flags` says. */
  int (*gradient)(const OnnxtrainBuildArgs* args, int32_t* input_grads, OnnxtrainMessage* message);
  /* A kernel in the memory of the host, for the backends that work there. `supports` returns 1 for element types that
   * it takes; null: float32 alone. Both null beside a decomposition. */
  int (*supports)(const OnnxtrainNode* node);
  int (*prepare)(const OnnxtrainNode* node, OnnxtrainKernel* kernel, OnnxtrainMessage* message);
} OnnxtrainOperator;

typedef struct OnnxtrainOperatorsApi {
  uint32_t version;     /* ONNXTRAIN_PLUGIN_VERSION */
  uint32_t struct_size; /* sizeof(OnnxtrainOperatorsApi) */
  const OnnxtrainOperator* operators;
  size_t num_operators;
} OnnxtrainOperatorsApi;

typedef const OnnxtrainOperatorsApi* (*OnnxtrainGetOperatorsFn)(uint32_t version);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* ONNXTRAIN_PLUGIN_H_ */
