#pragma once

#include "frontend/ops/single_node_importer.h"
