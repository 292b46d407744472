# Reads files through the optional component, if it is built.
if(TARGET onnxtrain_arrow)
  add_dependencies(${name} onnxtrain_arrow)
endif()
