// Tests that large initializers are views of the file.
#include "frontend/onnx/read/proto_util.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <span>

#include "frontend/onnx/read/file.h"
#include "frontend/onnx/write/export.h"
#include "frontend/onnx/write/external_writer.h"
#include "model_builder.h"
#include "tests/tools/tiny_onnx.h"

namespace onnxtrain {
namespace {

using testing::HasSubstr;

constexpr int64_t kElements = kMinMappedBytes / 4 + 3;

std::vector<float> Numbers(float first) {
  std::vector<float> values(kElements);
  std::iota(values.begin(), values.end(), first);
  return values;
}

// x [N, n] + w + ww + www + wwww: each name shifts the alignment of the data after it by a byte.
onnx::ModelProto AtEveryAddress() {
  onnx::ModelProto model = NewModel();
  AddInput(&model, "x", {-1, kElements});
  std::string at = "x";
  for (int i = 1; i <= 4; ++i) {
    const std::string name(i, 'w'), sum = "sum" + std::to_string(i);
    FillFloats(AddInitializer(&model, name, {kElements}), Numbers(static_cast<float>(i)));
    AddNode(&model, "Add", {at, name}, {sum});
    at = sum;
  }
  AddOutput(&model, at);
  return model;
}

std::vector<double> Expected(int first) {
  std::vector<double> values(kElements);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST(Lift, TensorsAtAnyAddressTakeNoMemory) {
  const auto model = LoadModel(AtEveryAddress());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_LE((*model)->HeapBytes(), 16u << 10) << "nodes alone";
  int askew = 0;
  for (int i = 1; i <= 4; ++i) {
    const HostTensor* tensor = (*model)->Initializer(std::string(i, 'w'));
    EXPECT_EQ(tensor->ToDoubles(), Expected(i));
    askew += reinterpret_cast<uintptr_t>(tensor->bytes().data()) % 4 != 0;
  }
  EXPECT_GT(askew, 0);
}

TEST(Lift, ConstantsAreAligned) {
  onnx::ModelProto proto = AtEveryAddress();
  for (int i = 5; i <= 12; ++i) {
    const std::string name(i, 'w');
    onnx::TensorProto* tensor = AddInitializer(&proto, name, {kElements}, 6);  // int32: not a weight
    const std::vector<int32_t> values(kElements, i);
    tensor->set_raw_data(values.data(), values.size() * sizeof(int32_t));
    onnx::NodeProto* node = AddNode(&proto, "Gather", {"x", name}, {"gathered" + std::to_string(i)});
    SetInt(node, "axis", 1);
    AddOutput(&proto, "gathered" + std::to_string(i));
  }
  const auto model = ImportModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  int constants = 0;
  for (const Node& node : model->graph.nodes()) {
    const HostTensor* value = node.op == "Constant" ? model->graph.FindConstant(node.outputs[0]) : nullptr;
    if (value == nullptr || value->size() < kElements) continue;
    ++constants;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(value->bytes().data()) % DTypeSize(value->dtype()), 0u);
  }
  EXPECT_EQ(constants, 8);
}

TEST(Lift, WhatIsLeftIsTheModelWithoutTheBytes) {
  onnx::ModelProto proto = AtEveryAddress();
  FillFloats(AddInitializer(&proto, "small", {2}), {5, 6});
  const std::string whole = proto.SerializeAsString();
  const ExtractedModel extracted = ExtractInitializers(std::as_bytes(std::span(whole)), kMinMappedBytes);
  ASSERT_EQ(extracted.raw_data.size(), 5u);
  onnx::ModelProto rest;
  ASSERT_TRUE(rest.ParseFromString(extracted.rest));
  for (int i = 0; i < 5; ++i) {
    onnx::TensorProto* tensor = rest.mutable_graph()->mutable_initializer(i);
    const ByteRange range = extracted.raw_data[i];
    EXPECT_EQ(tensor->has_raw_data(), i == 4);
    EXPECT_EQ(range.size > 0, i < 4);
    if (range.size > 0) tensor->set_raw_data(whole.substr(range.offset, range.size));
  }
  EXPECT_EQ(rest.SerializeAsString(), whole);
}

std::string Join(const std::vector<MessagePiece>& pieces) {
  std::string bytes;
  for (const MessagePiece& piece : pieces) {
    bytes.append(piece.head);
    if (piece.data.bytes() == 0) continue;
    const HostTensor data = piece.data.Whole();
    bytes.append(reinterpret_cast<const char*>(data.bytes().data()), data.bytes().size());
  }
  return bytes;
}

TEST(Lift, InsertingGivesTheModelBack) {
  onnx::ModelProto proto = AtEveryAddress();
  FillFloats(AddInitializer(&proto, "small", {2}), {5, 6});
  proto.mutable_graph()->mutable_initializer(1)->set_doc_string("after raw_data");
  proto.mutable_graph()->mutable_initializer(1)->mutable_unknown_fields()->AddVarint(91, 42);
  proto.add_metadata_props()->set_key("after the graph");
  const std::string whole = proto.SerializeAsString();
  std::vector<std::string> bytes;
  for (auto& tensor : *proto.mutable_graph()->mutable_initializer()) {
    bytes.push_back(tensor.raw_data());
    if (tensor.name() != "small") tensor.set_raw_data("");
  }
  std::vector<LazyTensor> raw_data;
  for (const std::string& b : bytes)
    raw_data.emplace_back(HostTensor({DType::kUInt8, {std::ssize(b)}}, nullptr, b.data()));
  raw_data.back() = {};
  const auto pieces = InsertInitializers(proto.SerializeAsString(), raw_data);
  EXPECT_EQ(CountBytes(pieces), whole.size());
  EXPECT_EQ(Join(pieces), whole);
}

TEST(Lift, ExportReplacesThemAndNothingElse) {
  onnx::ModelProto proto = AtEveryAddress();
  const auto model = LoadModel(proto);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto expect = [&](const std::map<std::string, HostTensor>& weights) {
    const std::string target = TestFolder() + "/trained.onnx";
    ASSERT_TRUE(Export(**model, weights, target).ok());
    EXPECT_EQ(ReadFile(target), proto.SerializeAsString());
    EXPECT_EQ(ExportBytes(**model, weights).value(), proto.SerializeAsString());
  };
  expect({});
  FillFloats(proto.mutable_graph()->mutable_initializer(1), Numbers(50));
  expect({{"ww", HostTensor::FromDoubles({DType::kFloat64, {kElements}}, Expected(50))},
          {"w", HostTensor::FromDoubles({DType::kFloat32, {kElements}}, Expected(1))}});
}

TEST(Lift, OfTwoFieldsTheLastCounts) {
  const onnx::ModelProto proto = AtEveryAddress();
  // On the wire: repeated graphs, which protobuf merges, and repeated raw_data in a tensor, of which the last counts.
  onnx::TensorProto head = proto.graph().initializer(0), large, small;
  head.set_name("twice");
  FillFloats(&large, Numbers(100));
  small.set_raw_data("12");
  const auto graph_with = [](const std::string& tensor) {
    return tiny::Message().Bytes(7, tiny::Message().Bytes(5, tensor).text()).text();
  };
  const std::string before = proto.SerializeAsString();
  for (const bool large_last : {true, false}) {
    const std::string tensor = head.SerializeAsString() + (large_last ? small : large).SerializeAsString() +
                               (large_last ? large : small).SerializeAsString();
    const auto model = OnnxModel::Load(WriteFile("twice.onnx", before + graph_with(tensor)));
    if (!large_last) {
      EXPECT_THAT(Message(model.status()), HasSubstr("has 2 bytes of raw_data"));
      continue;
    }
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ((*model)->Initializer("twice")->ToDoubles(), Expected(100));
    EXPECT_EQ((*model)->Initializer("ww")->ToDoubles(), Expected(2));
  }
}

TEST(Lift, SizesAreChecked) {
  onnx::ModelProto proto = AtEveryAddress();
  proto.mutable_graph()->mutable_initializer(2)->mutable_raw_data()->resize(4 * kElements - 4);
  EXPECT_THAT(Message(LoadModel(proto).status()), HasSubstr("bytes of raw_data"));
  proto = AtEveryAddress();
  proto.mutable_graph()->mutable_initializer(2)->add_int64_data(1);
  EXPECT_THAT(Message(LoadModel(proto).status()), HasSubstr("raw_data and int64_data"));
  proto = AtEveryAddress();
  proto.mutable_graph()->mutable_initializer(2)->set_name("w");
  EXPECT_THAT(Message(LoadModel(proto).status()), HasSubstr("defined twice"));
}

TEST(Lift, ReplacedTensorsAreNotLifted) {
  ModelEdits edits;
  edits.tensors["www"] = HostTensor::Filled({DType::kFloat32, {kElements}}, 7);
  const auto model = OnnxModel::Load(Save(AtEveryAddress()), edits);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->Initializer("www")->ToDoubles(), std::vector<double>(kElements, 7));
  EXPECT_EQ((*model)->Initializer("ww")->ToDoubles(), Expected(2));
}

}  // namespace
}  // namespace onnxtrain
