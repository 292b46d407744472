// A data set with pictures in files of their own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/data/image/picture_pipeline.h"
#include "frontend/data/sources/dataset.h"

namespace onnxtrain {

// Where the files of a column are. Immutable; any thread may read.
class PictureFiles {
 public:
  virtual ~PictureFiles() = default;
  virtual int64_t size() const = 0;
  // Replaces *bytes by the file of sample i.
  virtual absl::Status Read(int64_t i, std::vector<uint8_t>* bytes) const = 0;
  // Replaces *bytes by the beginning of the file, at least `most` bytes of it or all.
  virtual absl::Status ReadStart(int64_t i, size_t most, std::vector<uint8_t>* bytes) const { return Read(i, bytes); }
  // Returns "cat/7.jpg", and where that is: "photos/cat/7.jpg".
  virtual std::string Name(int64_t i) const = 0;
  virtual std::string Describe(int64_t i) const = 0;
};

// Files `names` within the folder `root`.
std::shared_ptr<const PictureFiles> FilesInFolder(std::string root, std::vector<std::string> names);

struct PictureColumn {
  std::string name;
  PictureKind kind = PictureKind::kColors;
  ImageOptions options;
  std::shared_ptr<const PictureFiles> files;
};

// Makes a data set of the columns `pictures`, then those of `table` (may be null) but `leave_out` (-1: none). All have
// equally many samples. A sample is described by its row in the table, else by its first file. Of pictures that keep
// their sizes (ImageOptions::sizes) the headers are read; those of one sample have equal sizes, or it cannot be read.
// Fails, with `name` in front, where it is not known what size pictures get.
absl::StatusOr<std::shared_ptr<const Dataset>> MakePictureDataset(const std::string& name,
                                                                  std::vector<PictureColumn> pictures,
                                                                  std::shared_ptr<const Dataset> table, int leave_out,
                                                                  bool describe_by_table,
                                                                  std::vector<std::string> notes = {});

}  // namespace onnxtrain
