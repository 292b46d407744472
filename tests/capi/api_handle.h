// Handles of the C interface that release themselves, for tests in C++.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capi/onnxtrain.h"
#include "tests/tools/blobs.h"
#include "tests/tools/scratch.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {

inline const OnnxtrainApi& Api() { return *OnnxtrainGetApi(ONNXTRAIN_API_VERSION); }

struct Ended {
  OnnxtrainCode code;
  std::string message;

  bool ok() const { return code == ONNXTRAIN_OK; }
};
inline std::ostream& operator<<(std::ostream& out, const Ended& e) { return out << e.code << ": " << e.message; }

// Releases the status.
inline Ended Take(OnnxtrainStatus* status) {
  Ended ended{Api().GetStatusCode(status), Api().GetStatusMessage(status)};
  EXPECT_EQ(ended.ok(), status == nullptr);
  EXPECT_EQ(ended.message.find('\n'), std::string::npos) << ended.message;
  Api().ReleaseStatus(status);
  return ended;
}

#define EXPECT_API_OK(call)             \
  do {                                  \
    const Ended ended_ = Take(call);    \
    EXPECT_TRUE(ended_.ok()) << ended_; \
  } while (false)

#define EXPECT_API_FAILS(call, wanted_code, text)                      \
  do {                                                                 \
    const Ended ended_ = Take(call);                                   \
    EXPECT_EQ(ended_.code, wanted_code) << ended_;                     \
    EXPECT_NE(ended_.message.find(text), std::string::npos) << ended_; \
  } while (false)

// A batch of Blobs, as the C interface takes it.
class BlobBatch {
 public:
  explicit BlobBatch(int64_t samples, uint32_t seed = 7) : arrays_(Blobs(samples, {.seed = seed})) {
    for (const auto& [name, tensor] : arrays_)
      tensors_.push_back({name.c_str(), name == "x" ? ONNXTRAIN_FLOAT : ONNXTRAIN_INT64, tensor.type().rank(),
                          tensor.shape().data(), tensor.bytes().data(), tensor.bytes().size()});
  }
  BlobBatch(const BlobBatch&) = delete;

  OnnxtrainTensor* data() { return tensors_.data(); }
  uint64_t size() const { return tensors_.size(); }
  OnnxtrainTensor& x() { return tensors_[0]; }
  OnnxtrainTensor& label() { return tensors_[1]; }
  HostTensor& values(size_t i) { return arrays_[i].second; }

 private:
  NamedArrays arrays_;
  std::vector<OnnxtrainTensor> tensors_;
};

constexpr char kBlobConfig[] = R"({"batch_size": 24, "lr": 0.01, "threads": 1})";

class CApi : public Scratch {
 protected:
  CApi() { tiny::Mlp(3).Save(Path("m.onnx")); }

  OnnxtrainTrainer* Open(const char* config = kBlobConfig) { return OpenModel("m.onnx", config); }
  OnnxtrainTrainer* OpenModel(const std::string& name, const char* config) {
    OnnxtrainModel* model = nullptr;
    OnnxtrainTrainer* trainer = nullptr;
    EXPECT_API_OK(Api().LoadModelFromFile(Path(name).c_str(), &model));
    EXPECT_API_OK(Api().CreateTrainer(model, config, nullptr, 0, &trainer));
    Api().ReleaseModel(model);
    return trainer;
  }
};

// The bytes of all parameters.
inline std::string ParameterBytes(OnnxtrainTrainer* trainer) {
  OnnxtrainTensors* all = nullptr;
  EXPECT_API_OK(Api().GetParameters(trainer, nullptr, &all));
  std::string bytes;
  for (uint64_t i = 0; i < Api().GetTensorCount(all); ++i) {
    OnnxtrainTensor t;
    EXPECT_API_OK(Api().GetTensor(all, i, &t));
    bytes.append(static_cast<const char*>(t.data), t.bytes);
  }
  Api().ReleaseTensors(all);
  return bytes;
}

}  // namespace onnxtrain
