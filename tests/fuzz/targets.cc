#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/base/strings.h"
#include "frontend/data/audio/sound_file.h"
#include "frontend/data/formats/csv.h"
#include "frontend/data/formats/idx.h"
#include "frontend/data/formats/npy.h"
#include "frontend/data/formats/npz.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/resample.h"
#include "frontend/data/preprocess.h"
#include "frontend/graph/parse.h"
#include "frontend/graph/print.h"
#include "frontend/onnx/import.h"
#include "frontend/ops/check.h"
#include "tools/onnxtrain/flags/flags_prepass.h"

namespace onnxtrain {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 24;  // of what a file declares

// Checks the form of every error: one line that says something.
bool Accepts(const absl::Status& status) {
  if (status.ok()) return true;
  CHECK(!status.message().empty());
  CHECK(status.message().find('\n') == absl::string_view::npos) << ToStd(status.message());
  return false;
}

// A folder of the process for the files that readers open by path.
class ScratchFolder {
 public:
  ScratchFolder() : path_(std::filesystem::temp_directory_path() / StrCat("onnxtrain_fuzz_", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  // Makes a new file: ext4 writes one that is overwritten to the disk when it is closed.
  std::string Write(const char* name, std::string_view bytes) const {
    std::filesystem::remove(path_ / name);
    std::ofstream(path_ / name, std::ios::binary) << bytes;
    return (path_ / name).string();
  }

 private:
  std::filesystem::path path_;
};

std::string WriteScratch(const char* name, std::string_view bytes) {
  static const ScratchFolder folder;
  return folder.Write(name, bytes);
}

// Reads the first samples of every column that is usable.
bool ReadSamples(const absl::StatusOr<std::shared_ptr<const Dataset>>& data) {
  if (!Accepts(data.status())) return false;
  for (int c = 0; c < static_cast<int>((*data)->columns().size()); ++c) {
    const Column& column = (*data)->columns()[c];
    for (int64_t i = 0; column.problem.empty() && i < std::min<int64_t>((*data)->size(), 8); ++i) {
      HostTensor sample(column.sample);
      Accepts((*data)->Read(i, c, sample.mutable_bytes()));
    }
  }
  return true;
}

bool RunModel(std::string_view bytes) {
  const auto model = OnnxModel::Load(WriteScratch("model.onnx", bytes));
  if (!Accepts(model.status())) return false;
  (*model)->nodes();
  CHECK((*model)->sha256().size() == 64);
  for (const std::string& name : (*model)->InitializerNames()) CHECK((*model)->Initializer(name) != nullptr) << name;
  return true;
}

bool RunImport(std::string_view bytes) {
  const auto model = OnnxModel::Load(WriteScratch("import.onnx", bytes));
  if (!Accepts(model.status()) || !Accepts(CheckOperators(**model, {}))) return false;
  const auto imported = Import(**model, {.batch = 2, .training = true});
  if (!Accepts(imported.status())) return false;
  const absl::Status valid = Verify(imported->graph);
  CHECK(valid.ok()) << valid;
  return true;
}

bool RunGraph(std::string_view bytes) {
  const auto graph = Parse(bytes, {.max_splat_bytes = kMaxBytes});
  if (!Accepts(graph.status())) return false;
  Accepts(Verify(*graph));
  const auto again = Parse(Print(*graph), {.max_splat_bytes = kMaxBytes});
  CHECK(again.ok()) << again.status();
  CHECK(Print(*again) == Print(*graph));
  return true;
}

bool RunNpz(std::string_view bytes) {
  const std::string path = WriteScratch("data.npz", bytes);
  const bool arrays = Accepts(ReadNpz(path, kMaxBytes).status());
  return ReadSamples(OpenDataset(path, {.max_bytes = kMaxBytes})) && arrays;
}

bool RunNpy(std::string_view bytes) {
  return ReadSamples(OpenNpy(WriteScratch("data.npy", bytes), {.max_bytes = kMaxBytes}));
}

bool RunCsv(std::string_view bytes) {
  return ReadSamples(OpenCsv(WriteScratch("data.csv", bytes), ',', {.max_bytes = kMaxBytes}));
}

bool RunIdx(std::string_view bytes) {
  return ReadSamples(OpenIdx(WriteScratch("data-idx3-ubyte", bytes), {.max_bytes = kMaxBytes}));
}

// Decodes all of a picture, and a part of it at a part of its size.
bool RunPicture(std::string_view bytes) {
  const ByteSpan file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  PictureDecoder decoder;
  const auto info = decoder.Open(file);
  if (!Accepts(info.status())) return false;
  if (int64_t{info->width} * info->height > kMaxBytes / 4) return false;  // takes long
  Image image, resized;
  if (!Accepts(decoder.Decode({}, &image))) return false;
  CHECK(image.pixels.size() == size_t(image.width) * image.height * image.channels);
  const Box part{info->width / 3, info->height / 3, (info->width + 2) / 3, (info->height + 2) / 3};
  if (!Accepts(decoder.Open(file).status())) return false;
  if (!Accepts(decoder.Decode({.part = part, .min_width = 4, .min_height = 4}, &image))) return false;
  Resampler().Resize(image, *info, part, Filter::kBilinear, 9, 5, &resized);
  return true;
}

// Reads a sound as it is, and another form of its beginning.
bool RunSound(std::string_view bytes) {
  const std::string path = WriteScratch("sound.wav", bytes);
  const AudioOptions other{.sample_rate = 6000, .channels = 1, .frames = 100};
  bool read = true;
  for (const AudioOptions& options : {AudioOptions{}, other}) {
    const auto format = PlanSoundFormat(path, options);
    if (!Accepts(format.status())) return false;
    CHECK(format->rate > 0 && format->channels > 0 && format->frames > 0);
    if (format->frames > kMaxBytes / format->channels) continue;  // takes long
    std::vector<float> out(format->frames * format->channels);
    read &= Accepts(ReadSound(path, *format, options, path, out.data()));
  }
  return read;
}

bool RunPreprocess(std::string_view bytes) {
  const auto preprocess = ParsePreprocess(std::string(bytes));
  if (!Accepts(preprocess.status())) return false;
  Accepts(ParseNormalize(preprocess->normalize).status());
  const auto again = ParsePreprocess(ToJson(*preprocess));
  CHECK(again.ok() && ToJson(*again) == ToJson(*preprocess));
  return true;
}

// One word per line. The bytes are also the content of every flag file.
bool RunFlags(std::string_view bytes) {
  static const std::vector<cli::FlagSpec> flags = {{.name = "model"},
                                                   {.name = "epochs"},
                                                   {.name = "batch_size"},
                                                   {.name = "lr", .repeatable = true},
                                                   {.name = "shuffle", .boolean = true}};
  const std::vector<std::string> words = absl::StrSplit(ToAbsl(bytes), '\n');
  const auto read = [&](const std::string&) -> absl::StatusOr<std::string> { return std::string(bytes); };
  return Accepts(cli::ParseArguments(words, {{"train", flags}, {"plan", flags}}, read).status());
}

constexpr FuzzTarget kTargets[] = {
    {"model", RunModel}, {"import", RunImport},   {"graph", RunGraph},
    {"npz", RunNpz},     {"npy", RunNpy},         {"csv", RunCsv},
    {"idx", RunIdx},     {"picture", RunPicture}, {"preprocess", RunPreprocess},
    {"flags", RunFlags}, {"sound", RunSound},
};

}  // namespace

std::span<const FuzzTarget> FuzzTargets() { return kTargets; }

}  // namespace onnxtrain
