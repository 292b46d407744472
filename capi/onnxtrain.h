/* Trains ONNX models inside other programs: the C interface of onnxtrain, C99.
 *
 *   const OnnxtrainApi* api = OnnxtrainGetApi(ONNXTRAIN_API_VERSION);
 *   OnnxtrainModel* model = NULL;
 *   OnnxtrainStatus* status = api->LoadModelFromFile("x.onnx", &model);
 *   if (status != NULL) { puts(api->GetStatusMessage(status)); api->ReleaseStatus(status); return 1; }
 *
 * One exported function, OnnxtrainGetApi, returns a table of functions. A later version of the library has the same
 * table with more functions behind it: a program that was built for version 1 works with every later one.
 *
 * Status. Functions that can fail return null on success, else a status: a code and one line of text in UTF-8, to be
 * released with ReleaseStatus. Where a function fails, what it would have stored is null or unchanged. No exception
 * leaves the library. Fields of the configuration stand in backquotes: "`batch_size`: expected …".
 *
 * Handles. Everything that a function stores in an `out` parameter is the caller's to release. A handle that was
 * released, or is of another kind, is an error of INVALID_ARGUMENT wherever it is used, as are null pointers; releasing
 * null or a released handle does nothing. Pointers to text and bytes belong to the handle that they were asked of, and
 * are valid until it is released.
 *
 * Threads. Any thread may call any function. Different trainers work at the same time, also those of one model. A
 * trainer does one thing at a time: while a call works on it, another call for it fails with BUSY, from other threads
 * and from its own callbacks; Cancel, ClearCancel and the release of handles are allowed. A handle that is released
 * while a call works on it stays until that call ends.
 *
 * The process. The library reads environment variables, and changes none; it handles no signals, sets no locale, prints
 * nothing and never exits. Trainers of one process share the processors: `threads` in the configuration limits each.
 * Signal handlers of the program must run on a stack of their own (sigaltstack, SA_ONSTACK) on the threads that train:
 * matrix products of oneDNN use the stack pointer for memory on the heap, which a handler would write over.
 */
#ifndef ONNXTRAIN_H_
#define ONNXTRAIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ONNXTRAIN_API_VERSION 1

/* NOLINTBEGIN(readability-identifier-naming): names as C libraries have them */

typedef struct OnnxtrainStatus OnnxtrainStatus;   /* why a function failed */
typedef struct OnnxtrainModel OnnxtrainModel;     /* an ONNX model as it was read; immutable */
typedef struct OnnxtrainTrainer OnnxtrainTrainer; /* weights, optimizer state and compiled programs of one training */
typedef struct OnnxtrainTensors OnnxtrainTensors; /* tensors by name, with memory of their own; immutable */
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

/* A dense row-major tensor. The memory belongs to the caller where it is passed to a function, which reads it until it
 * returns; to the handle where it is returned. */
typedef struct OnnxtrainTensor {
  const char* name;
  int32_t type; /* of OnnxtrainType */
  int32_t rank;
  const int64_t* shape; /* `rank` extents; may be null where rank is 0 */
  const void* data;     /* may be null where only type and shape are asked for */
  uint64_t bytes;       /* of data: elements × size of the element type */
} OnnxtrainTensor;

/* Of one update. */
typedef struct OnnxtrainStepResult {
  double loss;          /* mean over the targets of the batch, before the update; NaN where it was skipped */
  double grad_norm;     /* of all gradients together, before clipping */
  double learning_rate; /* that the update was made with */
  int64_t step;         /* updates so far, this one included */
  int64_t skipped;      /* 1: a gradient was not finite, and the weights stay as they were */
} OnnxtrainStepResult;

/* Of one evaluated batch. The mean over several batches is the sum of loss × weight divided by the sum of weight. */
typedef struct OnnxtrainEvaluation {
  double loss;     /* mean over the targets of the batch */
  double weight;   /* of these targets: their number, without class weights */
  double correct;  /* correct predictions; NaN where the loss counts none */
  double targets;  /* that `correct` is a part of */
  int64_t samples; /* of the batch */
} OnnxtrainEvaluation;

/* What Fit and EvaluateAll call, on the thread that called them; `user` is handed on. Functions that return int return
 * 0, or another number that ends the call with ONNXTRAIN_CALLBACK and that number in the message; an update that was
 * made stays made. All but next_batch may be null. A callback may call Cancel; whatever else works on the trainer is
 * BUSY. What a callback is handed is valid until it returns. */
typedef struct OnnxtrainCallbacks {
  void* user;
  /* The data source: stores the next batch, which stays readable until the next call; a count of 0: there is no more.
   */
  int (*next_batch)(void* user, const OnnxtrainTensor** batch, uint64_t* count);
  /* After each update. */
  int (*progress)(void* user, const OnnxtrainStepResult* result);
  /* One line of text: at the first Fit what was decided for the trainer; updates that were skipped. */
  void (*log)(void* user, const char* line);
  /* A metric of EvaluateAll: stores its sum over a batch, and the weight of the batch, given what next_batch returned
   * and the model's outputs. */
  int (*metric)(void* user, const OnnxtrainTensor* batch, uint64_t count, const OnnxtrainTensor* outputs,
                uint64_t output_count, double* sum, double* weight);
} OnnxtrainCallbacks;

typedef struct OnnxtrainApi {
  uint32_t version; /* of this table */
  uint32_t reserved;

  /* "0.1.0". Valid for ever. */
  const char* (*GetVersion)(void);

  /* Of null: ONNXTRAIN_OK and "". The text is valid until the status is released. */
  OnnxtrainCode (*GetStatusCode)(const OnnxtrainStatus* status);
  const char* (*GetStatusMessage)(const OnnxtrainStatus* status);
  void (*ReleaseStatus)(OnnxtrainStatus* status);

  /* Reads and checks a model. Of a file, large weights stay in the file, which must not be changed in place while the
   * model or a trainer of it is used; replacing it is harmless. Bytes are copied, must hold all weights themselves, and
   * are called `name` in messages (null: "model"). */
  OnnxtrainStatus* (*LoadModelFromFile)(const char* path, OnnxtrainModel** out);
  OnnxtrainStatus* (*LoadModelFromBytes)(const void* bytes, uint64_t size, const char* name, OnnxtrainModel** out);
  void (*ReleaseModel)(OnnxtrainModel* model);

  /* Makes a trainer. `config`: a JSON object of the fields that `onnxtrain train --help` lists, with underscores in
   * place of dashes, for example {"optimizer": "adamw", "lr": 1e-3, "freeze": ["encoder*"]}; null: all defaults. An
   * unknown field, and one that has no effect here, is an error that names it. Data and loop are the caller's: fields
   * about them are such errors. `max_steps` is the length of a schedule that has an end.
   *
   * `samples`, `sample_count`: what follows neither from the model nor from defaults, as tensors without data whose
   * shape is that of one sample, without the batch axis: inputs with free dimensions, and labels ("label", or the name
   * that the loss gives them) where the loss fits more than one kind. null, 0: everything follows.
   *
   * An extent of −n in such a sample varies from batch to batch, up to n: the length of texts, or height and width of
   * pictures, the same ones in all tensors that vary. Memory is planned for the greatest, and programs are compiled for
   * each size when it is first used.
   *
   * The trainer keeps what it needs of the model, which may be released. The first step compiles, for each size of
   * batch. */
  OnnxtrainStatus* (*CreateTrainer)(const OnnxtrainModel* model, const char* config, const OnnxtrainTensor* samples,
                                    uint64_t sample_count, OnnxtrainTrainer** out);
  void (*ReleaseTrainer)(OnnxtrainTrainer* trainer);

  /* The tensors of a batch: inputs first, then labels. `index` runs from 0; the count is stored in *count. Fills
   * *sample with name, type and the shape of one sample; valid until the trainer is released. */
  OnnxtrainStatus* (*GetBatchTensorCount)(OnnxtrainTrainer* trainer, uint64_t* count);
  OnnxtrainStatus* (*GetBatchTensor)(OnnxtrainTrainer* trainer, uint64_t index, OnnxtrainTensor* sample);

  /* Makes one update on a batch: tensors by name, in any order, with one batch extent. Larger batches than the
   * micro-batch (`micro_batch_size`, else `batch_size`) are accumulated. Tensors of the type that GetBatchTensor tells
   * are read in place where their data is a multiple of 64 bytes, and copied once otherwise; other types of numbers are
   * converted, where every value has an equal one. Class labels and indices are checked. `result` may be null, which
   * lets a GPU work on while the caller prepares the next batch. */
  OnnxtrainStatus* (*TrainStep)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                OnnxtrainStepResult* result);
  /* Adds the gradient of the mean loss of a batch to those since the last update; makes one update with the sum. A
   * failure of Accumulate discards the sum, and so does every other function that runs the model, except Predict.
   * `result`: as of TrainStep, with the mean loss over all targets; may be null. */
  OnnxtrainStatus* (*Accumulate)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count);
  OnnxtrainStatus* (*Apply)(OnnxtrainTrainer* trainer, OnnxtrainStepResult* result);
  /* The gradients of the mean loss of a batch with respect to every trained weight, by initializer name, in training
   * mode, before clipping; changes nothing. `loss` may be null. */
  OnnxtrainStatus* (*GetGradients)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                   double* loss, OnnxtrainTensors** out);
  /* The gradients of the same loss with respect to the inputs of floating-point type, by input name, in their shapes.
   * An input that the loss does not depend on has a gradient of zeros. With "loss": "dot" in the configuration the
   * labels are vectors of the outputs' shapes, and these gradients, as those of GetGradients, are their vector-Jacobian
   * products divided by the number of samples. `loss` may be null. */
  OnnxtrainStatus* (*GetInputGradients)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                                        double* loss, OnnxtrainTensors** out);
  /* Evaluates a batch with its labels in inference mode, and with the average of the weights where `ema_decay` keeps
   * one. */
  OnnxtrainStatus* (*Evaluate)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                               OnnxtrainEvaluation* result);
  /* Runs the model on a batch in the same way, without labels. *out gets the outputs of the model by name. */
  OnnxtrainStatus* (*Predict)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* batch, uint64_t count,
                              OnnxtrainTensors** out);

  uint64_t (*GetTensorCount)(const OnnxtrainTensors* tensors); /* 0 of null */
  /* Fills *tensor, which is valid until the tensors are released. */
  OnnxtrainStatus* (*GetTensor)(const OnnxtrainTensors* tensors, uint64_t index, OnnxtrainTensor* tensor);
  OnnxtrainStatus* (*FindTensor)(const OnnxtrainTensors* tensors, const char* name, OnnxtrainTensor* tensor);
  void (*ReleaseTensors)(OnnxtrainTensors* tensors);

  /* A copy of the weights that training changes, with running statistics, by initializer name: those of one name, or
   * all where `name` is null. */
  OnnxtrainStatus* (*GetParameters)(OnnxtrainTrainer* trainer, const char* name, OnnxtrainTensors** out);
  /* Sets such weights, of the shapes that GetParameters tells; float types are converted. All or none: where one does
   * not fit, nothing changes. Averages of the weights get the same values; moments of the optimizer stay. */
  OnnxtrainStatus* (*SetParameters)(OnnxtrainTrainer* trainer, const OnnxtrainTensor* parameters, uint64_t count);

  /* Gets the rate of the next update. Sets the base rate, which the schedule multiplies by its factor: with a constant
   * schedule, the rate of all further updates. */
  OnnxtrainStatus* (*GetLearningRate)(OnnxtrainTrainer* trainer, double* rate);
  OnnxtrainStatus* (*SetLearningRate)(OnnxtrainTrainer* trainer, double rate);

  /* Saves everything that a trainer of the same model and configuration needs to go on with the same bits: weights,
   * statistics, optimizer state, counters, learning rate. Files are replaced atomically. Loading checks every byte
   * before it changes the trainer; where it fails, nothing has changed. */
  OnnxtrainStatus* (*SaveStateToFile)(OnnxtrainTrainer* trainer, const char* path);
  OnnxtrainStatus* (*SaveStateToBytes)(OnnxtrainTrainer* trainer, OnnxtrainBytes** out);
  OnnxtrainStatus* (*LoadStateFromFile)(OnnxtrainTrainer* trainer, const char* path);
  OnnxtrainStatus* (*LoadStateFromBytes)(OnnxtrainTrainer* trainer, const void* bytes, uint64_t size);

  /* Exports the model with the trained weights, for inference: names, order, metadata and untouched weights stay as
   * they were read. To a file: atomically; external data stays external. To bytes: not for external data. */
  OnnxtrainStatus* (*ExportToFile)(OnnxtrainTrainer* trainer, const char* path);
  OnnxtrainStatus* (*ExportToBytes)(OnnxtrainTrainer* trainer, OnnxtrainBytes** out);

  const void* (*GetBytesData)(const OnnxtrainBytes* bytes); /* null of null */
  uint64_t (*GetBytesSize)(const OnnxtrainBytes* bytes);    /* 0 of null */
  void (*ReleaseBytes)(OnnxtrainBytes* bytes);

  /* Ends the call that works on the trainer as soon as possible, and lets later ones fail, with CANCELLED, until
   * ClearCancel. An update that is ended has changed nothing. From any thread, and from callbacks. */
  OnnxtrainStatus* (*Cancel)(OnnxtrainTrainer* trainer);
  OnnxtrainStatus* (*ClearCancel)(OnnxtrainTrainer* trainer);

  /* Fills *view with a weight, or running statistic, in the trainer's own memory, without a copy: valid until the
   * trainer is released, but not to be written, nor read while a call works on the trainer. It shows each update. With
   * `ema_decay` it is the weight, not its average. UNSUPPORTED where the trainer's memory is not the host's. */
  OnnxtrainStatus* (*ViewParameter)(OnnxtrainTrainer* trainer, const char* name, OnnxtrainTensor* view);

  /* Makes an update on each batch of the data source: as many as there are, and at most `max_steps` (0: no limit).
   * *result gets the last one, as of TrainStep; its `step` is 0 where there was none. May be null. */
  OnnxtrainStatus* (*Fit)(OnnxtrainTrainer* trainer, const OnnxtrainCallbacks* callbacks, uint64_t max_steps,
                          OnnxtrainStepResult* result);
  /* Evaluates all batches of the data source: *result gets the mean loss over their targets and the sums of the other
   * fields, *metric the sum of the callback's sums divided by that of its weights. May be null. */
  OnnxtrainStatus* (*EvaluateAll)(OnnxtrainTrainer* trainer, const OnnxtrainCallbacks* callbacks,
                                  OnnxtrainEvaluation* result, double* metric);

  /* Loads a library with operators of other domains (onnxtrain_plugin.h) for all models of the process that are loaded
   * from now on; for good. A library that is loaded already is left alone. A backend of one's own is named in the
   * configuration: {"backend": "path/libX.so"}. */
  OnnxtrainStatus* (*LoadPlugin)(const char* path);

  /* The folder of a run. With "out": "DIR" in the configuration a trainer records its updates there as the command line
   * does: metrics.jsonl and TensorBoard's events every `log_every` updates, a checkpoint every `save_every` (10
   * minutes), of which the last `keep_last` stay. With "resume": "auto" it goes on at the newest checkpoint with the
   * same bits, where there is one; the program has to go on with its batches. GetStepCount tells after how many: the
   * updates so far, with those of the run that was resumed. Such a trainer loads no states. */
  OnnxtrainStatus* (*GetStepCount)(OnnxtrainTrainer* trainer, int64_t* steps);
  /* Adds an evaluation to the metrics of the run; EvaluateAll does it by itself. Does nothing without a folder. */
  OnnxtrainStatus* (*RecordEvaluation)(OnnxtrainTrainer* trainer, const OnnxtrainEvaluation* evaluation);
  /* Ends the run: saves a last checkpoint, and writes model.onnx and summary.json, whose text *summary gets (may be
   * null). The trainer evaluates and predicts from then on, but makes no update. A trainer that is released without it
   * leaves its checkpoints, at which a resumed one goes on. */
  OnnxtrainStatus* (*FinishRun)(OnnxtrainTrainer* trainer, OnnxtrainBytes** summary);
} OnnxtrainApi;

/* Returns the table of functions, valid for ever; null where the library is older than `version`, or `version` is 0. */
const OnnxtrainApi* OnnxtrainGetApi(uint32_t version);

/* NOLINTEND(readability-identifier-naming) */

#ifdef __cplusplus
}
#endif

#endif /* ONNXTRAIN_H_ */
