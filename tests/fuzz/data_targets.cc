#include "tests/fuzz/data_targets.h"

#include <filesystem>
#include <string>
#include <vector>

#include "frontend/base/log.h"
#include "frontend/base/status.h"
#include "frontend/data/audio/sounds.h"
#include "frontend/data/bind/labels.h"
#include "frontend/data/bind/preprocess.h"
#include "frontend/data/chat/render_chat.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/image.h"
#include "frontend/data/sources/numpy.h"
#include "frontend/data/sources/token_shard.h"
#include "frontend/data/text/tokenizer.h"
#include "tests/fuzz/scratch.h"

namespace onnxtrain {
namespace {

// Reads the first samples of every column that is usable.
bool ReadSamples(const absl::StatusOr<std::shared_ptr<const Dataset>>& data) {
  if (!Accepts(data.status())) return false;
  for (int c = 0; c < static_cast<int>((*data)->columns().size()); ++c) {
    const Column& column = (*data)->columns()[c];
    for (int64_t i = 0; i < std::min<int64_t>((*data)->size(), 8); ++i) {
      if (column.text) {
        Accepts((*data)->ReadText(i, c).status());
      } else if (column.problem.empty()) {
        HostTensor sample(column.sample);
        Accepts((*data)->Read(i, c, sample.mutable_bytes()));
      }
    }
  }
  return true;
}

// Opens a file whose name ends so.
bool RunFile(const std::string& suffix, std::string_view bytes) {
  const DatasetOptions options{.images = {.width = 8, .height = 6}, .max_bytes = kMaxFuzzBytes};
  return ReadSamples(OpenDataset(WriteScratch("data" + suffix, bytes), options));
}

bool RunNpz(std::string_view bytes) {
  const std::string path = WriteScratch("data.npz", bytes);
  const bool arrays = Accepts(ReadNpz(path, kMaxFuzzBytes).status());
  return ReadSamples(OpenDataset(path, {.max_bytes = kMaxFuzzBytes})) && arrays;
}

// Decodes all of a picture, and a part of it at a part of its size.
bool RunPicture(std::string_view bytes) {
  const ByteSpan file(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  PictureDecoder decoder;
  const auto info = decoder.Open(file);
  if (!Accepts(info.status())) return false;
  if (int64_t{info->width} * info->height > kMaxFuzzBytes / 4) return false;  // takes long
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
  const auto files = FilesInFolder("", {WriteScratch("sound.wav", bytes)});
  const AudioOptions other{.sample_rate = 6000, .channels = 1, .frames = 100};
  bool read = true;
  for (const AudioOptions& options : {AudioOptions{}, other}) {
    const auto format = PlanSoundFormat(*files, 0, options);
    if (!Accepts(format.status())) return false;
    CHECK(format->rate > 0 && format->channels > 0 && format->frames > 0);
    if (format->frames > kMaxFuzzBytes / format->channels) continue;  // takes long
    std::vector<float> out(format->frames * format->channels);
    read &= Accepts(ReadSound(*files, 0, *format, options, "sound", out.data()));
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

bool RunShardInfo(std::string_view bytes) {
  const auto info = ParseShardInfo(std::string(bytes));
  if (!Accepts(info.status())) return false;
  const auto again = ParseShardInfo(ToJson(*info));
  CHECK(again.ok() && *again == *info);
  return true;
}

bool RunClassMap(std::string_view bytes) { return Accepts(ReadClassMap(WriteScratch("map.csv", bytes)).status()); }

// Loads a tokenizer and encodes texts with it, at once and in parts.
bool RunTokenizer(const std::string& path) {
  const auto tokenizer = LoadTokenizer(path);
  if (!Accepts(tokenizer.status())) return false;
  TokenizerScratch scratch;
  for (const char* text :
       {"", "a cab, caf\u00e9  12\n", "\u6771\u4eac \U0001f600 e\u0301 [MASK]<s>", "aaaaaaaaaaaaaaaaab"}) {
    std::vector<TokenId> ids;
    Accepts((*tokenizer)->Encode(text, &scratch, &ids));
    const auto parts = (*tokenizer)->Cut(text, 4);
    if (!Accepts(parts.status())) continue;
    for (const TextPart& part : *parts) (*tokenizer)->EncodePart(part, &scratch, &ids);
    EncodedSample sample;
    Accepts(FillTemplate((*tokenizer)->pair(), ids, ids, 8, &sample));
  }
  return true;
}

bool RunTokenizerJson(std::string_view bytes) { return RunTokenizer(WriteScratch("tokenizer.json", bytes)); }
bool RunVocabulary(std::string_view bytes) { return RunTokenizer(WriteScratch("vocab.txt", bytes)); }
bool RunSentencePiece(std::string_view bytes) { return RunTokenizer(WriteScratch("tokenizer.model", bytes)); }
bool RunMerges(std::string_view bytes) {
  WriteScratch("vocab.json", R"({"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4, "<|endoftext|>": 5})");
  return RunTokenizer(WriteScratch("merges.txt", bytes));
}

// Renders a chat template over a conversation with tools, within small limits.
bool RunChatTemplate(std::string_view bytes) {
  static const OrderedJson conversation = OrderedJson::parse(R"json({
    "messages": [{"role": "system", "content": " Be <brief>.\n"}, {"role": "user", "content": "h\u00e9 \ud83d\ude00"},
                 {"role": "assistant", "content": null, "tool_calls": [{"type": "function", "id": "a", "function":
                   {"name": "f", "arguments": {"x": [1, 2.5, null, true]}}}]},
                 {"role": "tool", "content": "3"}, {"role": "assistant", "content": [{"type": "text", "text": "ok"}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})json");
  const auto chat = ChatTemplate::Parse(bytes);
  if (!Accepts(chat.status())) return false;
  const RenderOptions options = {.max_steps = 20'000, .max_bytes = 1 << 16, .now = 1};
  const auto rendered = RenderTrainedChat(**chat, conversation, options);
  if (!Accepts(rendered.status())) return false;
  for (const TextRange& range : rendered->generated)
    CHECK(range.begin <= range.end && range.end <= rendered->text.size());
  return true;
}

constexpr FuzzTarget kTargets[] = {
    {"npz", RunNpz},
    {"npy", [](std::string_view b) { return RunFile(".npy", b); }},
    {"csv", [](std::string_view b) { return RunFile(".csv", b); }},
    {"gzip", [](std::string_view b) { return RunFile(".csv.gz", b); }},
    {"zstd", [](std::string_view b) { return RunFile(".csv.zst", b); }},
    {"idx", [](std::string_view b) { return RunFile("-idx3-ubyte", b); }},
    {"safetensors", [](std::string_view b) { return RunFile(".safetensors", b); }},
    {"jsonl", [](std::string_view b) { return RunFile(".jsonl", b); }},
    {"json", [](std::string_view b) { return RunFile(".json", b); }},
    {"tar", [](std::string_view b) { return RunFile(".tar", b); }},
    {"text", [](std::string_view b) { return RunFile(".txt", b); }},
    {"tokens", [](std::string_view b) { return RunFile(".bin", b); }},
    {"shard_info", RunShardInfo},
    {"class_map", RunClassMap},
    {"jpeg", RunPicture},
    {"png", RunPicture},
    {"webp", RunPicture},
    {"gif", RunPicture},
    {"bmp", RunPicture},
    {"tiff", RunPicture},
    {"wav", RunSound},
    {"flac", RunSound},
    {"preprocess", RunPreprocess},
    {"tokenizer", RunTokenizerJson},
    {"vocabulary", RunVocabulary},
    {"merges", RunMerges},
    {"sentence_piece", RunSentencePiece},
    {"chat_template", RunChatTemplate},
};

}  // namespace

std::span<const FuzzTarget> DataFuzzTargets() { return kTargets; }

}  // namespace onnxtrain
