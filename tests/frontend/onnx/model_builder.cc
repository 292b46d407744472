#include "model_builder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "frontend/base/status.h"
#include "frontend/onnx/write/export.h"

namespace onnxtrain {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() : path(fs::temp_directory_path() / StrCat("onnxtrain_test_", ::getpid())) { fs::create_directories(path); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

}  // namespace

std::string TestFolder() {
  static const Folder root;
  static int count = 0;
  static std::string current, owner;
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = StrCat(test->test_suite_name(), ".", test->name());
  if (name != owner) {
    owner = name;
    current = (root.path / StrCat("t", count++)).string();
    fs::create_directories(current);
  }
  return current;
}

std::string WriteFile(const std::string& name, std::string_view bytes) {
  const std::string path = TestFolder() + "/" + name;
  std::filesystem::remove(path);  // some file systems sync a truncated file at once
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

onnx::ModelProto NewModel(int64_t opset) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(opset);
  model.mutable_graph()->set_name("g");
  return model;
}

onnx::ValueInfoProto* AddInput(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims,
                               int type) {
  onnx::ValueInfoProto* input = model->mutable_graph()->add_input();
  input->set_name(name);
  auto* tensor = input->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (int64_t d : dims) {
    auto* dim = tensor->mutable_shape()->add_dim();
    if (d < 0) {
      dim->set_dim_param(StrCat("N", -d));
    } else {
      dim->set_dim_value(d);
    }
  }
  return input;
}

void AddOutput(onnx::ModelProto* model, const std::string& name) {
  onnx::ValueInfoProto* output = model->mutable_graph()->add_output();
  output->set_name(name);
  output->mutable_type()->mutable_tensor_type()->set_elem_type(1);
}

onnx::NodeProto* AddNode(onnx::ModelProto* model, const std::string& op, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& name) {
  onnx::NodeProto* node = model->mutable_graph()->add_node();
  node->set_op_type(op);
  node->set_name(name);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  return node;
}

void SetInts(onnx::NodeProto* node, const std::string& name, const std::vector<int64_t>& values) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INTS);
  for (int64_t v : values) attribute->add_ints(v);
}

void SetInt(onnx::NodeProto* node, const std::string& name, int64_t value) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::INT);
  attribute->set_i(value);
}

void SetStrings(onnx::NodeProto* node, const std::string& name, const std::vector<std::string>& values) {
  auto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::STRINGS);
  for (const std::string& v : values) attribute->add_strings(v);
}

void SetString(onnx::NodeProto* node, const std::string& name, const std::string& value) {
  auto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::STRING);
  attribute->set_s(value);
}

onnx::TensorProto* SetTensor(onnx::NodeProto* node, const std::string& name) {
  onnx::AttributeProto* attribute = node->add_attribute();
  attribute->set_name(name);
  attribute->set_type(onnx::AttributeProto::TENSOR);
  return attribute->mutable_t();
}

onnx::TensorProto* AddInitializer(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& dims,
                                  int type) {
  onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(type);
  for (int64_t d : dims) tensor->add_dims(d);
  return tensor;
}

void FillFloats(onnx::TensorProto* tensor, const std::vector<float>& values) {
  tensor->set_raw_data(values.data(), values.size() * sizeof(float));
}

void FillInts(onnx::TensorProto* tensor, const std::vector<int64_t>& values) {
  for (int64_t v : values) tensor->add_int64_data(v);
}

std::string Save(const onnx::ModelProto& model, const std::string& name) {
  return WriteFile(name, model.SerializeAsString());
}

absl::StatusOr<std::shared_ptr<const OnnxModel>> LoadModel(const onnx::ModelProto& model) {
  return OnnxModel::Load(Save(model));
}

absl::StatusOr<ImportedModel> ImportModel(const onnx::ModelProto& model, const ImportOptions& options) {
  auto loaded = LoadModel(model);
  if (!loaded.ok()) return loaded.status();
  return Import(**loaded, options);
}

absl::StatusOr<onnx::ModelProto> RoundTrip(const onnx::ModelProto& model,
                                           const std::map<std::string, HostTensor>& weights,
                                           std::vector<std::string>* notes) {
  const std::string source = Save(model), target = TestFolder() + "/trained.onnx";
  ASSIGN_OR_RETURN(const auto loaded, OnnxModel::Load(source));
  ASSIGN_OR_RETURN(std::vector<std::string> done, Export(*loaded, weights, target));
  if (notes != nullptr) *notes = std::move(done);
  onnx::ModelProto result;
  if (!result.ParseFromString(ReadFile(target))) return absl::InternalError(target + " cannot be read back");
  return result;
}

HostTensor Floats(Shape shape, const std::vector<double>& values) {
  return HostTensor::FromDoubles({DType::kFloat32, std::move(shape)}, values);
}

int64_t PeakMemory(bool restart) {
  if (restart) std::ofstream("/proc/self/clear_refs") << "5";
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

std::string Message(const absl::Status& status) { return std::string(ToStd(status.message())); }

onnx::ModelProto LinearModel() {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, 2});
  FillFloats(AddInitializer(&model, "w", {2, 3}), {1, 2, 3, 4, 5, 6});
  FillFloats(AddInitializer(&model, "b", {3}), {7, 8, 9});
  AddNode(&model, "MatMul", {"x", "w"}, {"xw"}, "product");
  AddNode(&model, "Add", {"xw", "b"}, {"y"}, "sum");
  AddOutput(&model, "y");
  return model;
}

}  // namespace onnxtrain
