#include "frontend/plugin/library.h"

#include <dlfcn.h>

#include <filesystem>

#include "frontend/base/status.h"
#include "frontend/base/strings.h"

namespace onnxtrain {
namespace {

absl::StatusCode ToStatusCode(int code) {
  switch (code) {
    case ONNXTRAIN_PLUGIN_INVALID:
      return absl::StatusCode::kInvalidArgument;
    case ONNXTRAIN_PLUGIN_UNSUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case ONNXTRAIN_PLUGIN_OUT_OF_MEMORY:
      return absl::StatusCode::kResourceExhausted;
    case ONNXTRAIN_PLUGIN_UNAVAILABLE:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

std::string_view PluginMessage::text() {
  text_.back() = 0;
  const std::string_view all = text_.data();
  return all.substr(0, all.find('\n'));
}

absl::Status PluginMessage::ToStatus(int code, std::string_view otherwise) {
  if (code == ONNXTRAIN_PLUGIN_OK) return absl::OkStatus();
  const std::string_view written = text();
  return {ToStatusCode(code), written.empty() ? StrCat(otherwise, " (code ", code, ")") : PrintableLine(written)};
}

namespace {

template <typename Api>
absl::StatusOr<const Api*> LoadTable(const std::string& path, const char* symbol) {
  // Makes the path absolute, because dlopen searches other folders for a name without a slash.
  ASSIGN_OR_RETURN(void* get, FindSymbol(std::filesystem::absolute(path).string(), symbol, path));
  if (get == nullptr) return nullptr;
  const Api* table = reinterpret_cast<const Api* (*)(uint32_t)>(get)(ONNXTRAIN_PLUGIN_VERSION);
  if (table == nullptr)
    return absl::UnimplementedError(
        StrCat(path, ": ", symbol, " does not serve version ", ONNXTRAIN_PLUGIN_VERSION, " of the plugin interface"));
  if (table->version != ONNXTRAIN_PLUGIN_VERSION)
    return absl::UnimplementedError(StrCat(path, ": was built for version ", table->version,
                                           " of the plugin interface, this program has version ",
                                           ONNXTRAIN_PLUGIN_VERSION));
  if (table->struct_size < sizeof(Api))
    return Invalid(path, ": the table of ", symbol, " has ", table->struct_size, " bytes, expected ", sizeof(Api));
  return table;
}

}  // namespace

absl::StatusOr<void*> FindSymbol(const std::string& path, const char* symbol, const std::string& what) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return absl::NotFoundError(StrCat(what, ": no such file: ", path));
  // Never closes the library, because libtorch and OpenMP runtimes do not survive being unloaded.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::UnavailableError(StrCat(what, ": cannot be loaded: ", dlerror()));
  return dlsym(library, symbol);
}

absl::StatusOr<const OnnxtrainOperatorsApi*> LoadOperatorsApi(const std::string& path) {
  return LoadTable<OnnxtrainOperatorsApi>(path, "OnnxtrainGetOperators");
}

absl::StatusOr<const OnnxtrainBackendApi*> LoadBackendApi(const std::string& path) {
  return LoadTable<OnnxtrainBackendApi>(path, "OnnxtrainGetBackend");
}

}  // namespace onnxtrain
