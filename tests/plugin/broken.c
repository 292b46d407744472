/* Libraries that are refused, one for each BROKEN_… that it is compiled with. */
#include <stddef.h>

#include "onnxtrain_plugin.h"

#if defined(BROKEN_VERSION)
const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version) {
  static const OnnxtrainBackendApi api = {
      .version = ONNXTRAIN_PLUGIN_VERSION + 1, .struct_size = sizeof(OnnxtrainBackendApi), .name = "later"};
  return (void)version, &api;
}
const OnnxtrainOperatorsApi* OnnxtrainGetOperators(uint32_t version) {
  static const OnnxtrainOperatorsApi api = {.version = ONNXTRAIN_PLUGIN_VERSION + 1,
                                            .struct_size = sizeof(OnnxtrainOperatorsApi)};
  return (void)version, &api;
}
#elif defined(BROKEN_NULL)
const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version) { return (void)version, NULL; }
#elif defined(BROKEN_SIZE)
const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version) {
  static const OnnxtrainBackendApi api = {.version = ONNXTRAIN_PLUGIN_VERSION, .struct_size = 8, .name = "short"};
  return (void)version, &api;
}
#elif defined(BROKEN_TABLE)
const OnnxtrainBackendApi* OnnxtrainGetBackend(uint32_t version) {
  static const OnnxtrainBackendApi api = {
      .version = ONNXTRAIN_PLUGIN_VERSION, .struct_size = sizeof(OnnxtrainBackendApi), .name = "empty"};
  return (void)version, &api;
}
static int infer(const OnnxtrainNode* node, OnnxtrainResultType* outputs, OnnxtrainMessage* message) {
  return (void)node, (void)outputs, (void)message, 0;
}
const OnnxtrainOperatorsApi* OnnxtrainGetOperators(uint32_t version) {
  static const OnnxtrainOperator operators[] = {
      {.domain = "broken", .name = "Op", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1, .infer = infer}};
  static const OnnxtrainOperatorsApi api = {.version = ONNXTRAIN_PLUGIN_VERSION,
                                            .struct_size = sizeof(OnnxtrainOperatorsApi),
                                            .operators = operators,
                                            .num_operators = 1};
  return (void)version, &api;
}
#else
int nothing_of_ours(void);
int nothing_of_ours(void) { return 0; }
#endif
