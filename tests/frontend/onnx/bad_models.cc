#include "bad_models.h"

#include "frontend/base/strings.h"
#include "model_builder.h"

namespace onnxtrain {
namespace {

void AddInts(onnx::ModelProto* model, const std::string& name, const std::vector<int64_t>& values) {
  FillInts(AddInitializer(model, name, {static_cast<int64_t>(values.size())}, 7), values);
}

void AddNumber(onnx::ModelProto* model, const std::string& name, int64_t value) {
  FillInts(AddInitializer(model, name, {}, 7), {value});
}

using Bend = void (*)(onnx::ModelProto* model, int64_t n);

struct Bomb {
  const char* op;
  Bend bend;
  int import_up_to = 0;  // importing n up to 2^this makes an expression that is never computed; above, it is refused
  bool is_read = true;   // inspect describes the file; else it refuses it
};

// Each makes "y" with about n elements from the scalar weight "one" or from x [1].
constexpr Bomb kBombs[] = {
    {"initializer",
     [](onnx::ModelProto* m, int64_t n) {
       AddInitializer(m, "big", {n});
       AddNode(m, "Relu", {"big"}, {"y"}, "bomb");
     },
     0, false},
    {"initializer of two extents",
     [](onnx::ModelProto* m, int64_t n) {
       AddInitializer(m, "big", {n, n});
       AddNode(m, "Relu", {"big"}, {"y"}, "bomb");
     },
     0, false},
    {"sparse initializer",
     [](onnx::ModelProto* m, int64_t n) {
       auto* sparse = m->mutable_graph()->add_sparse_initializer();
       sparse->add_dims(n);
       sparse->mutable_values()->set_name("big");
       sparse->mutable_values()->set_data_type(1);
       sparse->mutable_values()->add_dims(1);
       sparse->mutable_values()->add_float_data(1);
       sparse->mutable_indices()->set_data_type(7);
       sparse->mutable_indices()->add_dims(1);
       sparse->mutable_indices()->add_int64_data(0);
       AddNode(m, "Relu", {"big"}, {"y"}, "bomb");
     },
     0, false},
    {"external length",
     [](onnx::ModelProto* m, int64_t n) {
       onnx::TensorProto* t = AddInitializer(m, "big", {n});
       t->set_data_location(onnx::TensorProto::EXTERNAL);
       for (auto [key, value] :
            {std::pair<std::string, std::string>("location", "small.bin"), {"length", StrCat(4 * (n >> 4))}}) {
         auto* entry = t->add_external_data();
         entry->set_key(key), entry->set_value(value);
       }
       AddNode(m, "Relu", {"big"}, {"y"}, "bomb");
     },
     0, false},
    {"input",
     [](onnx::ModelProto* m, int64_t n) {
       AddInput(m, "huge", {1, n});
       AddNode(m, "Relu", {"huge"}, {"y"}, "bomb");
     },
     40},
    {"ConstantOfShape",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "shape", {n});
       AddNode(m, "ConstantOfShape", {"shape"}, {"y"}, "bomb");
     },
     40},
    {"ConstantOfShape as weight",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "shape", {1, n});
       AddNode(m, "ConstantOfShape", {"shape"}, {"w"}, "bomb");
       AddNode(m, "MatMul", {"x", "w"}, {"y"});
     }},
    {"Expand",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "shape", {n});
       AddNode(m, "Expand", {"one", "shape"}, {"e"}, "bomb");
       AddNode(m, "Exp", {"e"}, {"y"});
     },
     40},
    {"Tile",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "repeats", {n});
       AddNode(m, "Tile", {"one", "repeats"}, {"e"}, "bomb");
       AddNode(m, "Exp", {"e"}, {"y"});
     },
     40},
    {"Range",
     [](onnx::ModelProto* m, int64_t n) {
       AddNumber(m, "start", 0), AddNumber(m, "limit", n), AddNumber(m, "delta", 1);
       AddNode(m, "Range", {"start", "limit", "delta"}, {"y"}, "bomb");
     }},
    {"OneHot",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "index", {0}), AddInts(m, "depth", {n});
       FillFloats(AddInitializer(m, "values", {2}), {0, 1});
       AddNode(m, "OneHot", {"index", "depth", "values"}, {"y"}, "bomb");
     }},
    {"Pad",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "pads", {n, n});
       AddNode(m, "Pad", {"one", "pads"}, {"y"}, "bomb");
     },
     31},
    {"Pad by copies of the edge",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "pads", {n, n});
       auto* mode = AddNode(m, "Pad", {"one", "pads"}, {"y"}, "bomb")->add_attribute();
       mode->set_name("mode"), mode->set_type(onnx::AttributeProto::STRING), mode->set_s("edge");
     }},
    {"Resize",
     [](onnx::ModelProto* m, int64_t n) {
       AddInput(m, "image", {1, 1, 2, 2});
       AddInts(m, "sizes", {1, 1, n, n});
       AddNode(m, "Resize", {"image", "", "", "sizes"}, {"y"}, "bomb");
     }},
    {"EyeLike",
     [](onnx::ModelProto* m, int64_t n) {
       AddInput(m, "like", {n, n});
       AddNode(m, "EyeLike", {"like"}, {"y"}, "bomb");
     }},
    {"Trilu",
     [](onnx::ModelProto* m, int64_t n) {
       AddInput(m, "like", {n, n});
       AddNode(m, "Trilu", {"like"}, {"y"}, "bomb");
     }},
    {"Reshape",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "shape", {n, n, -1});
       AddNode(m, "Reshape", {"x", "shape"}, {"y"}, "bomb");
     }},
    {"Gather",
     [](onnx::ModelProto* m, int64_t n) {
       AddInput(m, "index", {n}, 7);
       AddNode(m, "Gather", {"one", "index"}, {"y"}, "bomb");
     },
     40},
    {"RandomNormal",
     [](onnx::ModelProto* m, int64_t n) { SetInts(AddNode(m, "RandomNormal", {}, {"y"}, "bomb"), "shape", {n}); }, 40},
    {"outer product",
     [](onnx::ModelProto* m, int64_t n) {
       AddInts(m, "column", {n, 1}), AddInts(m, "row", {1, n});
       AddNode(m, "Expand", {"one", "column"}, {"a"}, "bomb_a"), AddNode(m, "Expand", {"one", "row"}, {"b"}, "bomb_b");
       AddNode(m, "Add", {"a", "b"}, {"y"}, "bomb");
     }},
};

}  // namespace

std::vector<BadModel> OversizedModels() {
  std::vector<BadModel> models;
  for (const Bomb& bomb : kBombs) {
    for (const int shift : {29, 31, 40, 62}) {
      onnx::ModelProto model = NewModel();
      AddInput(&model, "x", {1, 1});
      FillFloats(AddInitializer(&model, "one", {1}), {1});
      bomb.bend(&model, int64_t{1} << shift);
      AddOutput(&model, "y");
      models.push_back({StrCat(bomb.op, " of 2^", shift), std::move(model), shift <= bomb.import_up_to, bomb.is_read});
    }
  }
  return models;
}

}  // namespace onnxtrain
