// The two contracts in C speak of results and element types by the same numbers.
#include <gtest/gtest.h>

#include "capi/onnxtrain.h"
#include "frontend/plugin/onnxtrain_plugin.h"

namespace {

TEST(Contract, NumbersAreThoseOfTheCInterface) {
  const int pairs[][2] = {{ONNXTRAIN_PLUGIN_OK, ONNXTRAIN_OK},
                          {ONNXTRAIN_PLUGIN_INVALID, ONNXTRAIN_INVALID_ARGUMENT},
                          {ONNXTRAIN_PLUGIN_UNSUPPORTED, ONNXTRAIN_UNSUPPORTED},
                          {ONNXTRAIN_PLUGIN_OUT_OF_MEMORY, ONNXTRAIN_OUT_OF_MEMORY},
                          {ONNXTRAIN_PLUGIN_UNAVAILABLE, ONNXTRAIN_UNAVAILABLE},
                          {ONNXTRAIN_PLUGIN_INTERNAL, ONNXTRAIN_INTERNAL},
                          {ONNXTRAIN_ELEMENT_FLOAT32, ONNXTRAIN_FLOAT},
                          {ONNXTRAIN_ELEMENT_UINT8, ONNXTRAIN_UINT8},
                          {ONNXTRAIN_ELEMENT_INT8, ONNXTRAIN_INT8},
                          {ONNXTRAIN_ELEMENT_UINT16, ONNXTRAIN_UINT16},
                          {ONNXTRAIN_ELEMENT_INT16, ONNXTRAIN_INT16},
                          {ONNXTRAIN_ELEMENT_INT32, ONNXTRAIN_INT32},
                          {ONNXTRAIN_ELEMENT_INT64, ONNXTRAIN_INT64},
                          {ONNXTRAIN_ELEMENT_BOOL, ONNXTRAIN_BOOL},
                          {ONNXTRAIN_ELEMENT_FLOAT16, ONNXTRAIN_FLOAT16},
                          {ONNXTRAIN_ELEMENT_FLOAT64, ONNXTRAIN_DOUBLE},
                          {ONNXTRAIN_ELEMENT_UINT32, ONNXTRAIN_UINT32},
                          {ONNXTRAIN_ELEMENT_UINT64, ONNXTRAIN_UINT64},
                          {ONNXTRAIN_ELEMENT_BFLOAT16, ONNXTRAIN_BFLOAT16}};
  for (const auto& [plugin, api] : pairs) EXPECT_EQ(plugin, api);
}

}  // namespace
