// The one way to glog. Never include it where torch headers are included: both define CHECK and LOG.
#pragma once

#include <glog/logging.h>
