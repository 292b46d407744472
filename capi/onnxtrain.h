/* The C99 interface of onnxtrain, which trains ONNX models inside other programs.
 *
 *   const OnnxtrainApi* api = OnnxtrainGetApi(ONNXTRAIN_API_VERSION);
 *   OnnxtrainModel* model = NULL;
 *   OnnxtrainStatus* status = api->LoadModelFromFile("x.onnx", &model);
 *   if (status != NULL) { puts(api->GetStatusMessage(status)); api->ReleaseStatus(status); return 1; }
 *
 * One exported function, OnnxtrainGetApi, returns a table of functions. Later versions of the library only append
 * functions to the table: a program built for version 1 works with every later one.
 *
 * Status. Functions that can fail return null on success, else a status: a code and one line of text in UTF-8, to be
 * released with ReleaseStatus. After an error, output parameters are null or unchanged. No exception leaves the
 * library. Messages quote fields of the configuration in backquotes: "`batch_size`: expected …".
 *
 * Handles. The caller releases every handle that a function stores in an `out` parameter. Using a released handle, a
 * handle of another kind or a null pointer fails with INVALID_ARGUMENT; releasing null or a released handle does
 * nothing. Pointers to text and bytes belong to the handle they come from, and are valid until it is released.
 *
 * Threads. Any thread may call any function. Different trainers work concurrently, also those of one model. While a
 * call works on a trainer, other calls for it fail with BUSY, both from other threads and from its own callbacks;
 * Cancel, ClearCancel and the release of handles are allowed. A handle released during a call lives until that call
 * ends.
 *
 * Process. The library reads environment variables but changes none; it handles no signals, sets no locale, prints
 * nothing and never exits. Trainers of one process share the CPUs; `threads` in the configuration limits each. On
 * training threads, signal handlers of the program must use an alternate stack (sigaltstack, SA_ONSTACK): kernels of
 * oneDNN point the stack register to the heap, where a handler would overwrite data.
 */
#ifndef ONNXTRAIN_H_
#define ONNXTRAIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONNXTRAIN_API_VERSION 1

/* NOLINTBEGIN(readability-identifier-naming): names follow the conventions of C libraries */

typedef struct OnnxtrainStatus OnnxtrainStatus;   /* why a function failed */
typedef struct OnnxtrainModel OnnxtrainModel;     /* an ONNX model; immutable */
typedef struct OnnxtrainTrainer OnnxtrainTrainer; /* weights, optimizer state and compiled programs of one training */
typedef struct OnnxtrainTensors OnnxtrainTensors; /* tensors by name, which own their memory; immutable */
typedef struct OnnxtrainBytes OnnxtrainBytes;     /* a block of bytes; immutable */

typedef enum OnnxtrainCode {
  ONNXTRAIN_OK = 0,
  ONNXTRAIN_INVALID_ARGUMENT = 1, /* a wrong call, configuration, model or batch */
  ONNXTRAIN_NOT_FOUND = 2,        /* no such file, parameter or backend */
  ONNXTRAIN_UNSUPPORTED = 3,      /* operators or options that cannot be trained */
  ONNXTRAIN_OUT_OF_MEMORY = 4,
  ONNXTRAIN_CANCELLED = 5,   /* by Cancel */
  ONNXTRAIN_BUSY = 6,        /* another call works on the trainer */
  ONNXTRAIN_UNAVAILABLE = 7, /* a file, disk or device failed, or has changed */
  ONNXTRAIN_INTERNAL = 8,    /* a fault of the library */
  ONNXTRAIN_CALLBACK = 9     /* a callback failed */
} OnnxtrainCode;

/* Element types, with the numbers of ONNX (TensorProto.DataType). */
typedef enum OnnxtrainType {
  ONNXTRAIN_FLOAT = 1,
  ONNXTRAIN_UINT8 = 2,
  ONNXTRAIN_INT8 = 3,
  ONNXTRAIN_UINT16 = 4,
  ONNXTRAIN_INT16 = 5,
  ONNXTRAIN_INT32 = 6,
  ONNXTRAIN_INT64 = 7,
  ONNXTRAIN_BOOL = 9, /* one byte, 0 or 1 */
  ONNXTRAIN_FLOAT16 = 10,
  ONNXTRAIN_DOUBLE = 11,
  ONNXTRAIN_UINT32 = 12,
  ONNXTRAIN_UINT64 = 13,
  ONNXTRAIN_BFLOAT16 = 16
} OnnxtrainType;

/* A dense row-major tensor. The caller owns the memory of arguments, which a function reads until it returns; handles
 * own the memory of results. */
typedef struct OnnxtrainTensor {
  const char* name;
  int32_t type; /* of OnnxtrainType */
  int32_t rank;
  const int64_t* shape; /* `rank` extents; may be null where rank is 0 */
  const void* data;     /* may be null where only type and shape are needed */
  uint64_t bytes;       /* of data: elements × size of the element type */
} OnnxtrainTensor;

/* The result of one update. */
typedef struct OnnxtrainStepResult {
  double loss;          /* mean over the targets of the batch, before the update; NaN where it was skipped */
  double grad_norm;     /* norm of all gradients together, before clipping */
  double learning_rate; /* learning rate of the update */
  int64_t step;         /* updates so far, including this one */
  int64_t skipped;      /* 1: a gradient was not finite, and the weights are unchanged */
} OnnxtrainStepResult;

/* The result of an evaluation. The mean over several batches is the sum of loss × weight divided by the sum of weight.
 */
typedef struct OnnxtrainEvaluation {
  double loss;     /* mean over the targets of the batch */
  double weight;   /* weight of the targets: their number, without class weights */
  double correct;  /* number of correct predictions; NaN if the loss counts none */
  double targets;  /* number of predictions that `correct` refers to */
  int64_t samples; /* number of samples in the batch */
} OnnxtrainEvaluation;

/* Functions that Fit and EvaluateAll call on the calling thread, with `user` as first argument. A result other than 0
 * ends the call with ONNXTRAIN_CALLBACK and that number in the message; updates made so far remain. All but next_batch
 * may be null. A callback may call Cancel; other calls for the trainer fail with BUSY. Arguments are valid until the
 * callback returns. */
typedef struct OnnxtrainCallbacks {
  void* user;
  /* Stores the next batch, which must stay readable until the next call; a count of 0 ends the data. */
  int (*next_batch)(void* user, const OnnxtrainTensor** batch, uint64_t* count);
  /* Called after each update. */
  int (*progress)(void* user, const OnnxtrainStepResult* result);
  /* Receives lines of text: the automatic decisions at the first Fit, and skipped updates. */
  void (*log)(void* user, const char* line);
  /* Computes a metric of EvaluateAll from a batch and the model's outputs: stores its sum over the batch, and the
   * weight of the batch. */
  int (*metric)(void* user, const OnnxtrainTensor* batch, uint64_t count, const OnnxtrainTensor* outputs,
                uint64_t output_count, double* sum, double* weight);
} OnnxtrainCallbacks;

typedef struct OnnxtrainApi {
  uint32_t version; /* of this table */
  uint32_t reserved;

  /* Returns "0.1.0", a static string. */
  const char* (*GetVersion)(void);

  /* Return ONNXTRAIN_OK and "" for null. The text is valid until the status is released. */
  OnnxtrainCode (*GetStatusCode)(const OnnxtrainStatus* status);
  const char* (*GetStatusMessage)(const OnnxtrainStatus* status);
  void (*ReleaseStatus)(OnnxtrainStatus* status);

  /* Read and check a model. Large weights stay in the file, which must not be changed in place while the model or a
   * trainer of it exists; replacing the file is harmless. Bytes are copied and must contain all weights; messages call
   * them `name` (null: "model"). */
  OnnxtrainStatus* (*LoadModelFromFile)(const char* path, OnnxtrainModel** out);
  OnnxtrainStatus* (*LoadModelFromBytes)(const void* bytes, uint64_t size, const char* name, OnnxtrainModel** out);
  void (*ReleaseModel)(OnnxtrainModel* model);

  /* Creates a trainer. `config`: a JSON object of the fields that `onnxtrain train --help` lists, with underscores in
   * place of dashes, for example {"optimizer": "adamw", "lr": 1e-3, "freeze": ["encoder*"]}; null: all defaults.
   * Unknown fields and fields without effect are errors that name the field; these include all fields about data and
   * the training loop, which belong to the caller. `max_steps` is the length of a schedule that has an end.
   *
   * `samples`, `sample_count`: types and shapes that neither the model nor defaults determine, as tensors without data
   * in the shape of one sample, without the batch axis: inputs with free dimensions, and labels ("label", or the name
   * that the loss defines) if the loss accepts more than one kind. Null and 0 if there are none.
   *
   * An extent of −n in such a shape varies between batches from 1 to n: the length of texts, or height and width of
   * images, equal in all tensors that vary. Memory is planned for the maximum, and programs are compiled for each size
   * at its first use.
   *
   * The model may be released: the trainer shares what it needs of it. The first step of each batch size compiles. */
  OnnxtrainStatus* (*CreateTrainer)(const OnnxtrainModel* model, const char* config, const OnnxtrainTensor* samples,
                                    uint64_t sample_count, OnnxtrainTrainer** out);
  void (*ReleaseTrainer)(OnnxtrainTrainer* trainer);

  /* Describe the tensors of a batch, inputs first, then labels; `index` is from 0 to *count − 1. GetBatchTensor fills
   * *sample with name, type and the shape of one sample, valid until the trainer is released. */
  OnnxtrainStatus* (*GetBatchTensorCount)(OnnxtrainTrainer* trainer, uint64_t* count);
  OnnxtrainStatus* (*GetBatchTensor)(OnnxtrainTrainer* trainer, uint64_t index, OnnxtrainTensor* sample);

  /* Makes one update on a batch: tensors by name in any order, with equal batch extents. Batches larger than the
   * micro-batch (`micro_batch_size`, or else `batch_size`) are accumulated. Tensors of the type from GetBatchTensor are
   * read in place if the address of their data is a multiple of 64, and copied otherwise; other numeric types are
   * converted if the conversion is exact. Class labels and indices are checked. A null `result` lets a GPU continue
   * while the caller prepares the next batch. */
  OnnxtrainStatus* (*TrainStep)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                OnnxtrainStepResult* result);
  /* Accumulate adds the gradient of the mean loss of a batch to the sum since the last update; Apply makes one update
   * with the sum. A failed Accumulate discards the sum, as does every other function that runs the model, except
   * Predict. `result`: as in TrainStep, with the mean loss over all targets; may be null. */
  OnnxtrainStatus* (*Accumulate)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count);
  OnnxtrainStatus* (*Apply)(OnnxtrainTrainer* trainer, OnnxtrainStepResult* result);
  /* Computes the gradients of the mean loss of a batch for every trained weight, by initializer name, in training mode
   * and before clipping. Changes nothing. `loss` may be null. */
  OnnxtrainStatus* (*GetGradients)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                   double* loss, OnnxtrainTensors** out);
  /* Computes the gradients of the same loss for the inputs of floating-point type, by input name, in their shapes;
   * zeros for inputs without influence on the loss. With "loss": "dot" in the configuration, labels are vectors in the
   * shapes of the outputs, and these gradients and those of GetGradients are vector-Jacobian products divided by the
   * number of samples. `loss` may be null. */
  OnnxtrainStatus* (*GetInputGradients)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                        double* loss, OnnxtrainTensors** out);
  /* Evaluates a batch with labels in inference mode, with the averages of the weights if `ema_decay` keeps some. */
  OnnxtrainStatus* (*Evaluate)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                               OnnxtrainEvaluation* result);
  /* Runs the model on a batch in the same way, without labels. Stores the outputs of the model by name in *out. */
  OnnxtrainStatus* (*Predict)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                              OnnxtrainTensors** out);

  uint64_t (*GetTensorCount)(const OnnxtrainTensors* tensors); /* 0 for null */
  /* Fill *tensor, which is valid until `tensors` is released. */
  OnnxtrainStatus* (*GetTensor)(const OnnxtrainTensors* tensors, uint64_t index, OnnxtrainTensor* tensor);
  OnnxtrainStatus* (*FindTensor)(const OnnxtrainTensors* tensors, const char* name, OnnxtrainTensor* tensor);
  void (*ReleaseTensors)(OnnxtrainTensors* tensors);

  /* Copies the weight or running statistic of the initializer `name`, or, if null, all that training changes. */
  OnnxtrainStatus* (*GetParameters)(OnnxtrainTrainer* trainer, const char* name, OnnxtrainTensors** out);
  /* Sets weights and running statistics, in the shapes of GetParameters; float types are converted. Changes nothing if
   * one of them does not fit. Sets averages of the weights to the same values, and keeps optimizer moments. */
  OnnxtrainStatus* (*SetParameters)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* parameters, uint64_t count);

  /* GetLearningRate returns the rate of the next update. SetLearningRate sets the base rate, which the schedule
   * multiplies by its factor; with a constant schedule it is the rate of all further updates. */
  OnnxtrainStatus* (*GetLearningRate)(OnnxtrainTrainer* trainer, double* rate);
  OnnxtrainStatus* (*SetLearningRate)(OnnxtrainTrainer* trainer, double rate);

  /* Save and load all state that a trainer of the same model and configuration needs to continue bit for bit: weights,
   * statistics, optimizer state, counters, learning rate. Files are replaced atomically. Loading verifies every byte
   * first, and changes nothing on an error. */
  OnnxtrainStatus* (*SaveStateToFile)(OnnxtrainTrainer* trainer, const char* path);
  OnnxtrainStatus* (*SaveStateToBytes)(OnnxtrainTrainer* trainer, OnnxtrainBytes** out);
  OnnxtrainStatus* (*LoadStateFromFile)(OnnxtrainTrainer* trainer, const char* path);
  OnnxtrainStatus* (*LoadStateFromBytes)(OnnxtrainTrainer* trainer, const void* bytes, uint64_t size);

  /* Export the model with the trained weights, for inference; names, order, metadata and untrained weights are
   * unchanged. Files are replaced atomically, and external data stays external; models with external data cannot be
   * exported to bytes. */
  OnnxtrainStatus* (*ExportToFile)(OnnxtrainTrainer* trainer, const char* path);
  OnnxtrainStatus* (*ExportToBytes)(OnnxtrainTrainer* trainer, OnnxtrainBytes** out);

  const void* (*GetBytesData)(const OnnxtrainBytes* bytes); /* null for null */
  uint64_t (*GetBytesSize)(const OnnxtrainBytes* bytes);    /* 0 for null */
  void (*ReleaseBytes)(OnnxtrainBytes* bytes);

  /* Cancel ends the current call of the trainer as soon as possible with CANCELLED, and makes later ones fail until
   * ClearCancel. A cancelled update changes nothing. Callable from any thread, and from callbacks. */
  OnnxtrainStatus* (*Cancel)(OnnxtrainTrainer* trainer);
  OnnxtrainStatus* (*ClearCancel)(OnnxtrainTrainer* trainer);

  /* Fills *view with a weight or running statistic in the trainer's memory, without a copy. It follows each update and
   * is valid until the trainer is released; do not write to it, nor read it while a call works on the trainer. With
   * `ema_decay` it shows the weight, not its average. Fails with UNSUPPORTED if the trainer's memory is on a device. */
  OnnxtrainStatus* (*ViewParameter)(OnnxtrainTrainer* trainer, const char* name, OnnxtrainTensor* view);

  /* Makes an update on each batch of next_batch, at most `max_steps` (0: no limit). Stores the result of the last
   * update in *result, with `step` 0 if there was none. `result` may be null. */
  OnnxtrainStatus* (*Fit)(OnnxtrainTrainer* trainer, const OnnxtrainCallbacks* callbacks, uint64_t max_steps,
                          OnnxtrainStepResult* result);
  /* Evaluates all batches of next_batch. Stores the mean loss over their targets and the sums of the other fields in
   * *result, and the sum of the metric callback's sums divided by that of its weights in *metric. Both may be null. */
  OnnxtrainStatus* (*EvaluateAll)(OnnxtrainTrainer* trainer, const OnnxtrainCallbacks* callbacks,
                                  OnnxtrainEvaluation* result, double* metric);

  /* Loads a library with operators of other domains (onnxtrain_plugin.h), for all models that the process loads later.
   * It cannot be unloaded; loading it again has no effect. A custom backend is named in the configuration instead:
   * {"backend": "path/libX.so"}. */
  OnnxtrainStatus* (*LoadPlugin)(const char* path);

  /* Returns the number of updates so far, including those of a resumed run.
   *
   * With "out": "DIR" in the configuration, a trainer records a run in that folder as the command line does:
   * metrics.jsonl and TensorBoard events every `log_every` updates, a checkpoint every `save_every` (10 minutes), of
   * which the last `keep_last` are kept. With "resume": "auto" it continues bit for bit from the newest checkpoint, if
   * there is one; the program must then skip the batches of GetStepCount updates. Such a trainer loads no states. */
  OnnxtrainStatus* (*GetStepCount)(OnnxtrainTrainer* trainer, int64_t* steps);
  /* Adds an evaluation to the metrics of the run, as EvaluateAll does automatically. Does nothing without a folder. */
  OnnxtrainStatus* (*RecordEvaluation)(OnnxtrainTrainer* trainer, const OnnxtrainEvaluation* evaluation);
  /* Ends the run: saves a last checkpoint, writes model.onnx and summary.json, and stores the text of the latter in
   * *summary (may be null). The trainer can then evaluate and predict, but not train. A trainer released without
   * FinishRun leaves its checkpoints, from which a later one can resume. */
  OnnxtrainStatus* (*FinishRun)(OnnxtrainTrainer* trainer, OnnxtrainBytes** summary);
} OnnxtrainApi;

/* Returns the static table of functions, or null if the library is older than `version` or `version` is 0. */
const OnnxtrainApi* OnnxtrainGetApi(uint32_t version);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* ONNXTRAIN_H_ */
