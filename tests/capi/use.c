/* Trains, evaluates, predicts and exports through the C interface alone, as a program in C would.
 *
 *   use MODEL OUT    MODEL: x[batch,4] → 3 scores y, with weights w1, b1, w2, b2
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxtrain.h"

#define SAMPLES 48
#define CLASSES 3
#define STEPS 60

static const OnnxtrainApi* api;

static void Fail(const char* what, const char* why) {
  fprintf(stderr, "use: %s: %s\n", what, why);
  exit(1);
}

static void Check(OnnxtrainStatus* status, const char* what) {
  if (status != NULL) Fail(what, api->GetStatusMessage(status));
}

static void Expect(int holds, const char* what) {
  if (!holds) Fail(what, "is not so");
}

static float values[SAMPLES][4];
static int64_t labels[SAMPLES];

static void MakeSamples(void) {
  uint32_t seed = 7;
  for (int i = 0; i < SAMPLES; ++i) {
    labels[i] = i % CLASSES;
    for (int j = 0; j < 4; ++j) {
      seed = seed * 1664525u + 1013904223u;
      values[i][j] = (float)(seed >> 8) / 33554432.0f + (j == labels[i] ? 2.0f : 0.0f);
    }
  }
}

static const int64_t value_shape[] = {SAMPLES, 4};
static const int64_t label_shape[] = {SAMPLES};

static OnnxtrainTensor Values(void) {
  const OnnxtrainTensor tensor = {"x", ONNXTRAIN_FLOAT, 2, value_shape, values, sizeof(values)};
  return tensor;
}

static OnnxtrainTensor Labels(void) {
  const OnnxtrainTensor tensor = {"label", ONNXTRAIN_INT64, 1, label_shape, labels, sizeof(labels)};
  return tensor;
}

static OnnxtrainTrainer* Open(const char* path) {
  OnnxtrainModel* model = NULL;
  OnnxtrainTrainer* trainer = NULL;
  Check(api->LoadModelFromFile(path, &model), "LoadModelFromFile");
  Check(api->CreateTrainer(model, "{\"lr\": 0.01, \"batch_size\": 48, \"seed\": 3, \"threads\": 1}", NULL, 0, &trainer),
        "CreateTrainer");
  api->ReleaseModel(model); /* the trainer keeps what it needs */
  return trainer;
}

static void CheckBatch(OnnxtrainTrainer* trainer) {
  uint64_t count = 0;
  OnnxtrainTensor sample;
  Check(api->GetBatchTensorCount(trainer, &count), "GetBatchTensorCount");
  Expect(count == 2, "the model takes an input and a label");
  Check(api->GetBatchTensor(trainer, 0, &sample), "GetBatchTensor");
  Expect(strcmp(sample.name, "x") == 0 && sample.type == ONNXTRAIN_FLOAT && sample.rank == 1 && sample.shape[0] == 4,
         "the input is x: 4 floats");
  Check(api->GetBatchTensor(trainer, 1, &sample), "GetBatchTensor");
  Expect(strcmp(sample.name, "label") == 0 && sample.type == ONNXTRAIN_INT64 && sample.rank == 0,
         "the label is an integer");
}

static void Train(OnnxtrainTrainer* trainer) {
  OnnxtrainStepResult first, result;
  const OnnxtrainTensor batch[] = {Values(), Labels()};
  Check(api->TrainStep(trainer, batch, 2, &first), "TrainStep");
  for (int i = 1; i < STEPS; ++i) Check(api->TrainStep(trainer, batch, 2, i % 2 ? NULL : &result), "TrainStep");
  Check(api->TrainStep(trainer, batch, 2, &result), "TrainStep");
  Expect(result.step == STEPS + 1 && result.skipped == 0, "all updates count");
  Expect(result.loss < 0.5 * first.loss && result.grad_norm > 0, "the loss falls");
  Expect(fabs(result.learning_rate - 0.01) < 1e-8, "the rate is that of the configuration");
}

static void SetRate(OnnxtrainTrainer* trainer) {
  double rate = 0;
  OnnxtrainStepResult result;
  const OnnxtrainTensor batch[] = {Values(), Labels()};
  Check(api->SetLearningRate(trainer, 0.002), "SetLearningRate");
  Check(api->GetLearningRate(trainer, &rate), "GetLearningRate");
  Expect(fabs(rate - 0.002) < 1e-9, "the rate is what was set");
  Check(api->TrainStep(trainer, batch, 2, &result), "TrainStep");
  Expect(fabs(result.learning_rate - 0.002) < 1e-8, "the update uses the rate that was set");
}

static void Evaluate(OnnxtrainTrainer* trainer) {
  OnnxtrainEvaluation result;
  const OnnxtrainTensor batch[] = {Labels(), Values()}; /* in any order */
  Check(api->Evaluate(trainer, batch, 2, &result), "Evaluate");
  Expect(result.samples == SAMPLES && result.targets == SAMPLES && result.correct == SAMPLES, "all are told apart");
}

/* Returns the scores that the trainer predicts. */
static OnnxtrainTensors* Predict(OnnxtrainTrainer* trainer, OnnxtrainTensor* scores) {
  OnnxtrainTensors* outputs = NULL;
  const OnnxtrainTensor batch[] = {Values()};
  Check(api->Predict(trainer, batch, 1, &outputs), "Predict");
  Expect(api->GetTensorCount(outputs) == 1, "the model has one output");
  Check(api->FindTensor(outputs, "y", scores), "FindTensor");
  Expect(scores->rank == 2 && scores->shape[0] == SAMPLES && scores->shape[1] == CLASSES, "a score for each class");
  return outputs;
}

static void ExpectSamePredictions(OnnxtrainTrainer* a, OnnxtrainTrainer* b) {
  OnnxtrainTensor of_a, of_b;
  OnnxtrainTensors *all_a = Predict(a, &of_a), *all_b = Predict(b, &of_b);
  Expect(of_a.bytes == of_b.bytes && memcmp(of_a.data, of_b.data, of_a.bytes) == 0, "predictions have the same bits");
  api->ReleaseTensors(all_a);
  api->ReleaseTensors(all_b);
}

static void MoveParameters(OnnxtrainTrainer* from, OnnxtrainTrainer* to) {
  OnnxtrainTensors* all = NULL;
  OnnxtrainTensor parameters[8];
  Check(api->GetParameters(from, NULL, &all), "GetParameters");
  const uint64_t count = api->GetTensorCount(all);
  Expect(count == 4, "four weights are trained");
  for (uint64_t i = 0; i < count; ++i) Check(api->GetTensor(all, i, &parameters[i]), "GetTensor");
  Check(api->SetParameters(to, parameters, count), "SetParameters");
  api->ReleaseTensors(all);
}

static void Export(OnnxtrainTrainer* trainer, const char* out) {
  OnnxtrainBytes* bytes = NULL;
  Check(api->ExportToFile(trainer, out), "ExportToFile");
  Check(api->ExportToBytes(trainer, &bytes), "ExportToBytes");
  FILE* file = fopen(out, "rb");
  Expect(file != NULL, "the file is there");
  const uint64_t size = api->GetBytesSize(bytes);
  char* read = malloc(size + 1);
  Expect(read != NULL && fread(read, 1, size + 1, file) == size, "file and bytes have the same size");
  Expect(memcmp(read, api->GetBytesData(bytes), size) == 0, "file and bytes are the same");
  fclose(file);
  free(read);

  OnnxtrainModel* model = NULL;
  OnnxtrainTrainer* again = NULL;
  Check(api->LoadModelFromBytes(api->GetBytesData(bytes), size, "exported", &model), "LoadModelFromBytes");
  api->ReleaseBytes(bytes);
  Check(api->CreateTrainer(model, "{\"batch_size\": 48, \"threads\": 1}", NULL, 0, &again), "CreateTrainer");
  api->ReleaseModel(model);
  ExpectSamePredictions(trainer, again);
  api->ReleaseTrainer(again);
}

int main(int argc, char** argv) {
  if (argc != 3) Fail("arguments", "expected MODEL OUT");
  api = OnnxtrainGetApi(ONNXTRAIN_API_VERSION);
  Expect(api != NULL && api->version == ONNXTRAIN_API_VERSION, "the library has this version");
  MakeSamples();
  OnnxtrainTrainer *trainer = Open(argv[1]), *other = Open(argv[1]);
  CheckBatch(trainer);
  Train(trainer);
  SetRate(trainer);
  Evaluate(trainer);
  MoveParameters(trainer, other);
  ExpectSamePredictions(trainer, other);
  Export(trainer, argv[2]);
  api->ReleaseTrainer(trainer);
  api->ReleaseTrainer(other);
  return 0;
}
