#include "frontend/onnx/recover/torch_export.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "absl/strings/numbers.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

constexpr std::string_view kSpecPrefix = "pkg.torch.export.graph_signature.InputSpec.";

bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.'; }

std::string_view ReadName(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && IsNameChar(text[end])) ++end;
  return text.substr(at, end - at);
}

// Returns the text between `open`, first found from `at`, and the next `close`; "" if there is none.
std::string_view Between(std::string_view text, std::string_view open, char close, size_t at = 0) {
  const size_t begin = text.find(open, at);
  if (begin == std::string_view::npos) return {};
  const size_t end = text.find(close, begin + open.size());
  return end == std::string_view::npos ? std::string_view()
                                       : text.substr(begin + open.size(), end - begin - open.size());
}

std::optional<SignatureEntry::Kind> ParseKind(std::string_view name) {
  using Kind = SignatureEntry::Kind;
  if (name == "PARAMETER") return Kind::kParameter;
  if (name == "BUFFER") return Kind::kBuffer;
  if (name == "CONSTANT_TENSOR") return Kind::kConstant;
  return std::nullopt;
}

void AddEntry(std::string_view placeholder, std::string_view kind, std::string_view target, TorchSignature* signature) {
  const auto parsed = ParseKind(kind);
  if (parsed && !placeholder.empty() && !target.empty())
    signature->emplace(placeholder, SignatureEntry{*parsed, std::string(target)});
}

// Parses "p_fc_weight: PARAMETER target='fc.weight'".
void ParseLine(std::string_view line, TorchSignature* signature) {
  const size_t colon = line.find(": ");
  if (colon == std::string_view::npos) return;
  AddEntry(line.substr(0, colon), ReadName(line, colon + 2), Between(line, "target='", '\'', colon), signature);
}

// Parses "InputSpec(kind=<InputKind.PARAMETER: 1>, arg=TensorArgument(name='p_fc_weight'), target='fc.weight', …)".
void ParseSpec(std::string_view spec, TorchSignature* signature) {
  AddEntry(Between(spec, "name='", '\''), ReadName(spec, 0), Between(spec, "target='", '\''), signature);
}

// Splits "['encoder', 'encoder.norm']", a list of strings in Python's syntax.
std::vector<std::string> ParseList(std::string_view text) {
  std::vector<std::string> items;
  for (size_t at = text.find_first_of("'\""); at != std::string_view::npos; at = text.find_first_of("'\"", at)) {
    const size_t end = text.find(text[at], at + 1);
    if (end == std::string_view::npos) break;
    items.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return items;
}

// Returns the innermost scope, or its class, but the last, which is the fx node itself.
std::string InnermostModule(const std::vector<std::string>& scopes) {
  return scopes.size() < 2 ? "" : scopes[scopes.size() - 2];
}

// Returns the outermost scope whose class belongs to a library of models.
std::optional<std::string> FindLibraryModule(const std::vector<std::string>& scopes,
                                             const std::vector<std::string>& classes) {
  // These packages hold the models: own models contain activations and blocks of these libraries, too.
  constexpr std::string_view kLibraries[] = {"transformers.models.", "transformers_modules.", "timm.models.",
                                             "torchvision.models."};
  for (size_t i = 0; i < std::min(scopes.size(), classes.size()); ++i) {
    if (std::ranges::any_of(kLibraries, [&](std::string_view library) { return classes[i].starts_with(library); }))
      return scopes[i];
  }
  return std::nullopt;
}

void ReadWeight(const onnx::ValueInfoProto& value, TorchMetadata* out) {
  const Metadata metadata = ReadMetadata(value);
  TorchWeight weight{.placeholder = FindMetadata(metadata, "pkg.torch.onnx.original_node_name"),
                     .folded_from = ParseList(FindMetadata(metadata, "pkg.onnxscript.optimizer.folded_from"))};
  AddEntry(weight.placeholder, FindMetadata(metadata, StrCat(kSpecPrefix, "kind")), value.name(), &out->signature);
  out->weights.emplace(value.name(), std::move(weight));
}

// Parses the third argument of an embedding, if present, in "(args = (%p_e_weight, %ids, 1), …".
int64_t ParsePaddingRow(std::string_view text) {
  std::string_view args = Between(text, "embedding.default](args = (", ')');
  for (int skipped = 0; skipped < 2; ++skipped) {
    const size_t comma = args.find(',');
    if (comma == std::string_view::npos) return -1;
    args.remove_prefix(comma + 1);
  }
  int64_t row = -1;
  return absl::SimpleAtoi(ToAbsl(args.substr(0, args.find(','))), &row) ? row : -1;
}

}  // namespace

std::shared_ptr<const FxNode> ParseFxNode(const Metadata& metadata) {
  const std::string_view text = FindMetadata(metadata, "pkg.torch.onnx.fx_node");
  if (!text.starts_with("%")) return nullptr;
  auto fx = std::make_shared<FxNode>();
  fx->name = ReadName(text, 1);
  fx->target = Between(text, "[target=", ']');
  const auto scopes = ParseList(FindMetadata(metadata, "pkg.torch.onnx.name_scopes"));
  const auto classes = ParseList(FindMetadata(metadata, "pkg.torch.onnx.class_hierarchy"));
  fx->module = InnermostModule(scopes);
  fx->module_class = InnermostModule(classes);
  fx->library_module = FindLibraryModule(scopes, classes);
  fx->padding_row = ParsePaddingRow(text);
  for (size_t at = text.find('%', text.find("](")); at != std::string_view::npos; at = text.find('%', at + 1)) {
    fx->args.emplace_back(ReadName(text, at + 1));
  }
  return fx;
}

TorchSignature ParseSignature(std::string_view text) {
  TorchSignature signature;
  constexpr std::string_view kSpec = "InputKind.";
  if (text.find(kSpec) == std::string_view::npos) {
    for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
      end = std::min(text.find('\n', begin), text.size());
      ParseLine(text.substr(begin, end - begin), &signature);
    }
    return signature;
  }
  for (size_t at = text.find(kSpec); at != std::string_view::npos;) {
    const size_t next = text.find(kSpec, at + 1);
    ParseSpec(text.substr(at + kSpec.size(), next == std::string_view::npos ? next : next - at), &signature);
    at = next;
  }
  return signature;
}

TorchMetadata ReadTorchMetadata(const onnx::ModelProto& model) {
  constexpr const char* kKey = "pkg.torch.export.ExportedProgram.graph_signature";
  TorchMetadata metadata;
  metadata.signature = ParseSignature(FindMetadata(ReadMetadata(model.graph()), kKey));
  metadata.signature.merge(ParseSignature(FindMetadata(ReadMetadata(model), kKey)));
  for (const auto* values : {&model.graph().value_info(), &model.graph().input()}) {
    for (const auto& value : *values) ReadWeight(value, &metadata);
  }
  return metadata;
}

}  // namespace onnxtrain
