/* The plugin interface of onnxtrain, in C99: a shared library can provide a backend that runs graphs, operators of
 * other ONNX domains, or both.
 *
 * A library is loaded from its path, `--backend path/libX.so` or `--plugin path/libX.so` (the fields `backend` and
 * `plugin` of the configuration), and exports one or both of
 *
 *   const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version);
 *   const OnnxtrainOperatorsApi* OnnxtrainGetOperators(uint32_t version);
 *
 * `version` is the interface version of onnxtrain. The library returns a table with the version that it was built
 * with, or null if it does not support `version`. onnxtrain refuses tables of another version. Libraries are never
 * unloaded; tables and their strings must stay valid until the process ends.
 *
 * Errors. Functions that return int return 0 on success, else a code of OnnxtrainPluginCode. After an error they may
 * write one line of UTF-8 to message->text, of at most message->size bytes including the final zero. No exception
 * may leave a function.
 *
 * Ownership. Arguments belong to onnxtrain and are valid until the function returns, unless its comment says
 * otherwise.
 *
 * Threads. Functions of one backend are called by one thread at a time, but not always by the same thread; different
 * backends of one library may run at the same time. Functions of operators may be called by several threads at the
 * same time; those of one kernel by one thread at a time.
 *
 * docs/interop/plugins.md shows how to write plugins.
 */
#ifndef ONNXTRAIN_PLUGIN_H_
#define ONNXTRAIN_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONNXTRAIN_PLUGIN_VERSION 1

/* NOLINTBEGIN(readability-identifier-naming): names in the style of C libraries */

typedef enum OnnxtrainPluginCode {
  ONNXTRAIN_PLUGIN_OK = 0,
  ONNXTRAIN_PLUGIN_INVALID = 1, /* the request of the user is invalid */
  ONNXTRAIN_PLUGIN_UNSUPPORTED = 3,
  ONNXTRAIN_PLUGIN_OUT_OF_MEMORY = 4,
  ONNXTRAIN_PLUGIN_UNAVAILABLE = 7, /* a device or file failed */
  ONNXTRAIN_PLUGIN_INTERNAL = 8     /* a bug of the library; other numbers are treated as this one */
} OnnxtrainPluginCode;

typedef struct OnnxtrainMessage {
  char* text;
  size_t size;
} OnnxtrainMessage;

/* Element types, with the numbers of ONNX (TensorProto.DataType). Types that are not listed here also occur; a
 * library need not support them. */
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
  const void* constant;            /* elements of a constant, in host memory; null if they may differ between runs */
  int32_t value;                   /* number of the value in the graph; -1: an absent input */
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
  int32_t kind; /* OnnxtrainAttributeKind: selects the fields below that are valid */
  int64_t i;
  double f;
  const char* s;
  size_t count; /* number of ints or floats */
  const int64_t* ints;
  const double* floats;
  const OnnxtrainTensorType* type; /* type and elements of a tensor */
  const void* data;
} OnnxtrainAttribute;

typedef struct OnnxtrainNode {
  const char* op;     /* name in frontend/ops/README.md, such as "Conv"; of another domain: "my.domain.Op" */
  const char* source; /* ONNX node that it was imported from, for messages; may be "" */
  size_t num_inputs, num_outputs, num_attributes;
  const OnnxtrainOperand* inputs;
  const OnnxtrainOperand* outputs;
  const OnnxtrainAttribute* attributes; /* all attributes of the operator, by name */
} OnnxtrainNode;

/* The nodes of a program in topological order. Operands with equal `value` are the same tensor. */
typedef struct OnnxtrainGraph {
  size_t num_nodes;
  const OnnxtrainNode* nodes;
} OnnxtrainGraph;

/* The addresses of one run, by input and output of the node. Tensors are dense, row-major and 64-byte aligned.
 * Addresses are null for absent inputs, unused outputs and tensors without elements. */
typedef struct OnnxtrainKernelArgs {
  const void* const* inputs;
  void* const* outputs;
  void* workspace; /* OnnxtrainKernel::workspace bytes; null if that is 0 */
} OnnxtrainKernelArgs;

/* A kernel of one node, prepared once, when a program is compiled, and run once per run of the program. `run` must
 * neither allocate nor wait for a device. An output of an elementwise operator may alias an input of the same type,
 * so each element must be read before it is written. No other output overlaps an input or output. */
typedef struct OnnxtrainKernel {
  void* state;
  int (*run)(void* state, const OnnxtrainKernelArgs* args, OnnxtrainMessage* message);
  void (*release)(void* state); /* may be null */
  size_t workspace;             /* bytes */
} OnnxtrainKernel;

typedef struct OnnxtrainBackendOptions {
  const char* device; /* as named by the user, else "auto" */
  int32_t threads;    /* maximum; 0: chosen by the library */
} OnnxtrainBackendOptions;

typedef enum OnnxtrainCopy {
  ONNXTRAIN_COPY_TO_DEVICE = 0,
  ONNXTRAIN_COPY_TO_HOST = 1,
  ONNXTRAIN_COPY_ON_DEVICE = 2
} OnnxtrainCopy;

/* The function table of a backend. onnxtrain plans memory, chooses the order of the nodes and runs one node at a
 * time. A node that the library does not support is decomposed. If it has no decomposition, onnxtrain's backend
 * `cpu` runs it in host memory, between copies if the library has device memory. */
typedef struct OnnxtrainBackendApi {
  uint32_t version;     /* ONNXTRAIN_PLUGIN_VERSION */
  uint32_t struct_size; /* sizeof(OnnxtrainBackendApi) */
  const char* name;     /* one word, for progress output and messages */

  int (*create)(const OnnxtrainBackendOptions* options, void** backend, OnnxtrainMessage* message);
  void (*destroy)(void* backend);
  /* Writes one line about versions and devices. May be null. */
  void (*describe)(void* backend, OnnxtrainMessage* line);

  /* Returns 1 if the library has a kernel for the node with its element types and attributes, else 0. */
  int (*supports)(void* backend, const OnnxtrainNode* node);
  /* Prepares nodes[node] of a graph, for which `supports` returned 1. The graph stays valid until all its kernels
   * are released. */
  int (*prepare)(void* backend, const OnnxtrainGraph* graph, size_t node, OnnxtrainKernel* kernel,
                 OnnxtrainMessage* message);

  /* Device memory: all five functions, or all null if kernels work on host memory. Addresses are flat: an address
   * plus an offset is a valid address. `allocate` returns zeroed, 64-byte aligned memory. Kernels and copies take
   * effect in the order of the calls; copies to and from the host have finished on return. */
  int (*allocate)(void* backend, size_t bytes, void** address, OnnxtrainMessage* message);
  void (*deallocate)(void* backend, void* address);
  int (*copy)(void* backend, void* to, const void* from, size_t bytes, OnnxtrainCopy direction,
              OnnxtrainMessage* message);
  int (*synchronize)(void* backend, OnnxtrainMessage* message); /* waits for all started work */
  size_t (*free_memory)(void* backend);                         /* bytes that allocate can still provide */
} OnnxtrainBackendApi;

typedef const OnnxtrainBackendApi* (*OnnxtrainGetBackendFn)(uint32_t version);

/* Appends the nodes of a gradient or decomposition to a graph. Values are identified by numbers; -1 is an absent
 * value. After a failure all further calls fail, too, and onnxtrain reports the first error. */
typedef struct OnnxtrainBuilder OnnxtrainBuilder;
typedef struct OnnxtrainBuilderApi {
  /* Appends an operator of ai.onnx, opset 18 (`domain` ""), or of another loaded domain. Stores the first
   * `num_outputs` outputs. Reads only `name`, `kind` and the fields selected by `kind` of each attribute. */
  int (*node)(OnnxtrainBuilder* builder, const char* domain, const char* op, const int32_t* inputs, size_t num_inputs,
              const OnnxtrainAttribute* attributes, size_t num_attributes, int32_t* outputs, size_t num_outputs);
  /* Appends a constant and stores its value. The elements are copied. */
  int (*constant)(OnnxtrainBuilder* builder, const OnnxtrainTensorType* type, const void* data, int32_t* value);
  /* Appends a scalar constant with the element type of `like` and stores its value. */
  int (*scalar)(OnnxtrainBuilder* builder, double number, int32_t like, int32_t* value);
} OnnxtrainBuilderApi;

/* The node to differentiate or decompose, and its values by input and output. */
typedef struct OnnxtrainBuildArgs {
  const OnnxtrainBuilderApi* api;
  OnnxtrainBuilder* builder;
  const OnnxtrainNode* node; /* only `type` and `constant` of its operands are valid */
  const int32_t* inputs;
  const int32_t* outputs;      /* null in a decomposition */
  const int32_t* output_grads; /* -1: no gradient; null in a decomposition */
} OnnxtrainBuildArgs;

#define ONNXTRAIN_MAX_RANK 16

typedef struct OnnxtrainResultType {
  int32_t element;
  int32_t rank;
  int64_t shape[ONNXTRAIN_MAX_RANK];
} OnnxtrainResultType;

enum OnnxtrainOperatorFlags {
  /* Every output element depends only on the input elements at the same index (after broadcasting). */
  ONNXTRAIN_OPERATOR_ELEMENTWISE = 1,
  /* The operator is piecewise constant, so its gradient is zero. An operator without this flag, a gradient and a
   * decomposition cannot be differentiated. */
  ONNXTRAIN_OPERATOR_ZERO_GRADIENT = 2
};

typedef struct OnnxtrainOperator {
  const char* domain; /* not "" and not a domain of onnxtrain */
  const char* name;
  int32_t min_inputs, max_inputs; /* max_inputs -1: any number */
  int32_t num_outputs;
  uint32_t flags; /* OnnxtrainOperatorFlags */
  /* Attributes: name, kind and default value. The first `num_required` attributes have no default. Nodes with other
   * attributes are refused. */
  const OnnxtrainAttribute* attributes;
  size_t num_attributes, num_required;

  /* Infers the types of all outputs, or fails with a message. May be null if the operator has a decomposition. */
  int (*infer)(const OnnxtrainNode* node, OnnxtrainResultType* outputs, OnnxtrainMessage* message);
  /* Appends the nodes that replace the operator when a model is imported, and stores the values of all outputs. The
   * gradient is that of these nodes. Null: the operator has a kernel. */
  int (*decompose)(const OnnxtrainBuildArgs* args, int32_t* outputs, OnnxtrainMessage* message);
  /* Appends the nodes of the gradient and stores the gradient of each input, -1 for none. Null: the gradient follows
   * from `flags`. */
  int (*gradient)(const OnnxtrainBuildArgs* args, int32_t* input_grads, OnnxtrainMessage* message);
  /* A kernel on host memory, for backends that run there. `supports` returns 1 for supported element types; null: no
   * floats other than float32. Both are null if the operator has a decomposition. */
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
