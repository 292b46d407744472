#include "frontend/onnx/write/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "model_builder.h"
#include "tests/shared_files.h"

namespace onnxtrain {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Export, WithoutWeightsTheFileIsTheSame) {
  onnx::ModelProto model = LinearModel();
  model.set_producer_name("somebody");
  model.set_doc_string("words");
  auto* property = model.add_metadata_props();
  property->set_key("k");
  property->set_value("v");
  auto result = RoundTrip(model, {});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(ReadFile(TestFolder() + "/trained.onnx"), ReadFile(TestFolder() + "/model.onnx"));
}

TEST(Export, ReplacesWeightsAndNothingElse) {
  const onnx::ModelProto model = LinearModel();
  std::vector<std::string> notes;
  auto result = RoundTrip(model, {{"b", Floats({3}, {-1, -2, -3})}, {"w", Floats({2, 3}, {1, 2, 3, 4, 5, 6})}}, &notes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(notes, ElementsAre("1 initializers replaced"));  // w is unchanged
  EXPECT_EQ(result->graph().initializer(0).SerializeAsString(), model.graph().initializer(0).SerializeAsString());
  float values[3];
  std::memcpy(values, result->graph().initializer(1).raw_data().data(), sizeof(values));
  EXPECT_THAT(values, ElementsAre(-1, -2, -3));
  result->mutable_graph()->mutable_initializer(1)->set_raw_data(model.graph().initializer(1).raw_data());
  EXPECT_EQ(result->SerializeAsString(), model.SerializeAsString());
}

TEST(Export, CastsBackToTheStoredType) {
  onnx::ModelProto model = LinearModel();
  onnx::TensorProto* half = AddInitializer(&model, "half", {2}, 10);
  half->add_int32_data(0x3c00), half->add_int32_data(0x3c00);
  onnx::TensorProto* typed = AddInitializer(&model, "typed", {2});
  typed->add_float_data(1), typed->add_float_data(2);
  auto result =
      RoundTrip(model, {{"half", Floats({2}, {2, -2})},
                        {"typed", HostTensor::FromDoubles({DType::kFloat64, {2}}, std::vector<double>{5, 6})}});
  ASSERT_TRUE(result.ok()) << result.status();
  auto again = LoadModel(*result);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->Initializer("half")->dtype(), DType::kFloat16);
  EXPECT_THAT((*again)->Initializer("half")->ToDoubles(), ElementsAre(2, -2));
  EXPECT_THAT(result->graph().initializer(3).float_data(), ElementsAre(5, 6));
}

// A weight that became infinite in the type of the file would be lost without a word.
TEST(Export, RefusesWhatTheStoredTypeCannotHold) {
  onnx::ModelProto model = LinearModel();
  onnx::TensorProto* half = AddInitializer(&model, "half", {2}, 10);
  half->add_int32_data(0x3c00), half->add_int32_data(0x3c00);
  EXPECT_TRUE(RoundTrip(model, {{"half", Floats({2}, {65504, -65504})}}).ok());
  const auto beyond = RoundTrip(model, {{"half", Floats({2}, {1, -70000})}});
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(std::string(beyond.status().message()),
              HasSubstr("became -70000, which is beyond the range of the f16 that the file stores it in"));
}

TEST(Export, ConstantNodesKeepTheirPlace) {
  onnx::ModelProto model = LinearModel();
  onnx::TensorProto* t = SetTensor(AddNode(&model, "Constant", {}, {"c"}, "const"), "value");
  t->set_data_type(1);
  t->add_dims(2);
  FillFloats(t, {1, 2});
  std::vector<std::string> notes;
  auto result = RoundTrip(model, {{"c", Floats({2}, {3, 4})}}, &notes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(notes, ElementsAre("1 Constant nodes replaced"));
  EXPECT_EQ(result->graph().node(2).name(), "const");
  EXPECT_NE(result->graph().node(2).attribute(0).t().raw_data(), t->raw_data());
}

TEST(Export, CopiesThatTrainedApartBecomeInitializers) {
  onnx::ModelProto model = LinearModel();
  AddNode(&model, "Identity", {"b"}, {"b2"}, "copy");
  AddNode(&model, "Add", {"y", "b2"}, {"z"});
  AddOutput(&model, "z");
  auto result = RoundTrip(model, {{"b2", Floats({3}, {1, 1, 1})}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->graph().node_size(), 3);
  EXPECT_EQ(result->graph().node(2).op_type(), "Add");
  auto imported = ImportModel(*result);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->weights.back().name, "b2");
  EXPECT_THAT(imported->weights.back().value.ToDoubles(), ElementsAre(1, 1, 1));
}

TEST(Export, UnknownFieldsSurvive) {
  onnx::ModelProto model = LinearModel();
  // Fields that are in no version of ONNX.
  model.mutable_unknown_fields()->AddLengthDelimited(90, "abc");
  model.mutable_graph()->mutable_node(0)->mutable_unknown_fields()->AddVarint(91, 42);
  auto result = RoundTrip(model, {{"b", Floats({3}, {0, 0, 0})}});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->unknown_fields().field_count(), 1);
  EXPECT_EQ(result->unknown_fields().field(0).length_delimited(), "abc");
  ASSERT_EQ(result->graph().node(0).unknown_fields().field_count(), 1);
  EXPECT_EQ(result->graph().node(0).unknown_fields().field(0).varint(), 42u);
}

TEST(Export, TrainingModeIsLeft) {
  onnx::ModelProto model = NewModel(15);
  AddInput(&model, "x", {-1, 2, 4, 4});
  for (const char* name : {"scale", "bias", "mean", "var"}) FillFloats(AddInitializer(&model, name, {2}), {1, 1});
  SetInt(AddNode(&model, "BatchNormalization", {"x", "scale", "bias", "mean", "var"}, {"y", "m", "v"}, "bn"),
         "training_mode", 1);
  AddOutput(&model, "y");
  std::vector<std::string> notes;
  auto result = RoundTrip(model, {}, &notes);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->graph().node(0).attribute(0).i(), 0);
  EXPECT_EQ(result->graph().node(0).output_size(), 1);
  EXPECT_THAT(notes, ElementsAre(HasSubstr("inference mode")));
}

TEST(Export, ExternalDataStaysExternal) {
  onnx::ModelProto model = LinearModel();
  WriteFile("w.bin", model.graph().initializer(0).raw_data());
  onnx::TensorProto* w = model.mutable_graph()->mutable_initializer(0);
  w->clear_raw_data();
  w->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = w->add_external_data();
  entry->set_key("location");
  entry->set_value("w.bin");
  auto result = RoundTrip(model, {{"w", Floats({2, 3}, {6, 5, 4, 3, 2, 1})}});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->graph().initializer(0).data_location(), onnx::TensorProto::EXTERNAL);
  auto again = OnnxModel::Load(TestFolder() + "/trained.onnx");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_THAT((*again)->Initializer("w")->ToDoubles(), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT((*OnnxModel::Load(TestFolder() + "/model.onnx"))->Initializer("w")->ToDoubles(),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(Export, Refusals) {
  const onnx::ModelProto model = LinearModel();
  EXPECT_THAT(Message(RoundTrip(model, {{"ghost", Floats({3}, {0, 0, 0})}}).status()), HasSubstr("'ghost' is not in"));
  EXPECT_THAT(Message(RoundTrip(model, {{"b", Floats({2}, {0, 0})}}).status()), HasSubstr("shape"));
  EXPECT_THAT(Message(RoundTrip(model, {{"xw", Floats({2}, {0, 0})}}).status()), HasSubstr("neither"));
  const auto loaded = OnnxModel::Load(Save(model));
  ASSERT_TRUE(loaded.ok());
  std::ofstream((*loaded)->path(), std::ios::app) << "more";
  EXPECT_THAT(Message(Export(**loaded, {}, TestFolder() + "/t.onnx").status()), HasSubstr("has changed"));
}

TEST(Export, IsProvenWithoutWriting) {
  const auto model = OnnxModel::Load(Save(LinearModel()));
  ASSERT_TRUE(model.ok());
  const std::string folder = TestFolder() + "/proof";
  std::filesystem::create_directories(folder);
  EXPECT_TRUE(CheckExport(**model, {}, folder + "/t.onnx").ok());
  EXPECT_THAT(Message(CheckExport(**model, {{"ghost", Floats({3}, {0, 0, 0})}}, folder + "/t.onnx")),
              HasSubstr("'ghost' is not in"));
  EXPECT_THAT(Message(CheckExport(**model, {{"b", Floats({2}, {0, 0})}}, folder + "/t.onnx")), HasSubstr("shape"));
  EXPECT_FALSE(CheckExport(**model, {}, folder + "/no/such/t.onnx").ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(Export, AFailedWriteKeepsWhatWasThere) {
  auto loaded = OnnxModel::Load(Save(LinearModel()));
  ASSERT_TRUE(loaded.ok());
  EXPECT_FALSE(Export(**loaded, {}, TestFolder() + "/no/such/folder/t.onnx").ok());
  // A folder cannot be replaced by a file; no temporary file remains.
  std::filesystem::create_directories(TestFolder() + "/target.onnx/inside");
  EXPECT_FALSE(Export(**loaded, {}, TestFolder() + "/target.onnx").ok());
  for (const auto& entry : std::filesystem::directory_iterator(TestFolder())) {
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr(".tmp.")));
  }
}

// Exports every real model with all its weights: the result has the same bytes.
TEST(SharedModels, ExportIsByteIdentical) {
  SKIP_WITHOUT_SHARED("models");
  int tried = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SharedPath("models"))) {
    if (entry.path().extension() != ".onnx") continue;
    auto loaded = OnnxModel::Load(entry.path().string());
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::map<std::string, HostTensor> weights;
    for (const std::string& name : (*loaded)->InitializerNames()) {
      const HostTensor* t = (*loaded)->Initializer(name);
      if (t != nullptr && IsFloat(t->dtype())) weights[name] = t->CastTo(DType::kFloat64);
    }
    const std::string target = TestFolder() + "/out.onnx";
    auto notes = Export(**loaded, weights, target);
    ASSERT_TRUE(notes.ok()) << notes.status();
    EXPECT_THAT(*notes, IsEmpty()) << entry.path();
    onnx::ModelProto before, after;
    ASSERT_TRUE(before.ParseFromString(ReadFile(entry.path().string())) && after.ParseFromString(ReadFile(target)));
    EXPECT_EQ(before.SerializeAsString(), after.SerializeAsString()) << entry.path();
    ++tried;
  }
  EXPECT_GT(tried, 10);
}

}  // namespace
}  // namespace onnxtrain
