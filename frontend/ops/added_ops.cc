#include "frontend/ops/added_ops.h"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "frontend/base/log.h"
#include "frontend/ops/row.h"

namespace onnxtrain {
namespace {

struct AddedOps {
  std::mutex mutex;
  std::map<std::string_view, const HostKernels*> kernels;  // by row
  std::map<std::pair<std::string_view, std::string_view>, const OnnxOp*> imports;
};

AddedOps& GetAddedOps() {
  static auto* added = new AddedOps;
  return *added;
}

template <typename Map, typename Key>
typename Map::mapped_type Find(const Map& map, const Key& key) {
  const auto it = map.find(key);
  return it == map.end() ? nullptr : it->second;
}

}  // namespace

void AddOp(const OpRow& row, const HostKernels& kernels) {
  RegisterOps({&row, 1});
  AddedOps& added = GetAddedOps();
  const std::lock_guard lock(added.mutex);
  CHECK(added.kernels.emplace(row.name, &kernels).second) << "two operators named " << row.name;
}

const HostKernels* FindHostKernels(std::string_view op) {
  AddedOps& added = GetAddedOps();
  const std::lock_guard lock(added.mutex);
  return Find(added.kernels, op);
}

void AddOnnxOp(const OnnxOp& op) {
  AddedOps& added = GetAddedOps();
  const std::lock_guard lock(added.mutex);
  CHECK(added.imports.emplace(std::pair(op.domain, op.op_type), &op).second) << "two imports of " << op.op_type;
}

const OnnxOp* FindAddedOnnxOp(std::string_view domain, std::string_view op_type) {
  AddedOps& added = GetAddedOps();
  const std::lock_guard lock(added.mutex);
  return Find(added.imports, std::pair(domain, op_type));
}

}  // namespace onnxtrain
