// Reads GraphProto and NodeProto into ParsedGraph and ParsedNode.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "frontend/onnx/read/file.h"
#include "frontend/onnx/read/parsed.h"
#include "frontend/onnx/read/proto_util.h"
#include "frontend/onnx/read/tensor_proto.h"

namespace onnx {
class AttributeProto;
class GraphProto;
class NodeProto;
class SparseTensorProto;
class TensorProto;
}  // namespace onnx

namespace onnxtrain {

// Returns "" for "ai.onnx", the default domain, and any other domain unchanged.
std::string NormalizeDomain(const std::string& domain);

// Reads the graphs and nodes of one model. Large tensors share the bytes of the message (which `proto` keeps alive), of
// the model file and of external data. Neither checks names nor sorts nodes.
class GraphReader {
 public:
  GraphReader(std::shared_ptr<const void> proto, const std::string& path, ExtractedData extracted,
              std::shared_ptr<const MappedFile> file)
      : proto_(std::move(proto)), files_(path), extracted_(std::move(extracted)), file_(std::move(file)) {}

  absl::Status ReadGraph(const onnx::GraphProto& proto, ParsedGraph* graph);
  // `index` names the node in messages if it has no name.
  absl::Status ReadNode(const onnx::NodeProto& proto, int index, ParsedNode* node);
  // Returns the external data files that large tensors are views of.
  std::vector<std::shared_ptr<const MappedFile>> mapped() const { return files_.mapped(); }

 private:
  absl::Status ReadInitializer(const onnx::TensorProto& proto, ParsedGraph* graph);
  absl::Status ReadSparseInitializer(const onnx::SparseTensorProto& proto, ParsedGraph* graph);
  absl::Status ReadAttribute(const onnx::AttributeProto& proto, ParsedNode* node);
  absl::Status ReadTensorAttribute(const onnx::AttributeProto& proto, ParsedNode* node);
  absl::StatusOr<TensorOrKind> ReadOwnTensor(const onnx::TensorProto& proto, const OwnedBytes& extracted);
  OwnedBytes FindExtracted(const std::string& name) const;

  std::shared_ptr<const void> proto_;
  ExternalFiles files_;
  ExtractedData extracted_;
  std::shared_ptr<const MappedFile> file_;
  int64_t sparse_bytes_ = 0;  // total of the dense copies so far
};

}  // namespace onnxtrain
