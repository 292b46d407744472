#pragma once

#include "frontend/ops/one_node.h"
