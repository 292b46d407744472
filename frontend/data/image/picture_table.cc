#include "frontend/data/image/picture_table.h"

#include <fstream>

#include "frontend/base/status.h"
#include "frontend/data/image/decode.h"
#include "frontend/data/image/picture_dataset.h"
#include "frontend/data/sources/file.h"

namespace onnxtrain {

bool IsPictureFile(const std::string& path) {
  if (!IsRegularFile(path)) return false;  // a FIFO would block
  uint8_t start[32] = {};
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(start), sizeof(start));
  return IsPicture({start, static_cast<size_t>(in.gcount())});
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenPictureTable(const std::string& path, const OpenTableFn& open,
                                                                const PathColumn& column,
                                                                const DatasetOptions& options) {
  ASSIGN_OR_RETURN(PathTable table, OpenPathTable(path, open, column, options));
  std::vector<PictureColumn> pictures;
  pictures.push_back(
      {.name = column.name, .options = options.images, .files = FilesInFolder(table.folder, std::move(table.paths))});
  return MakePictureDataset(path, std::move(pictures), table.table, table.column, true);
}

}  // namespace onnxtrain
