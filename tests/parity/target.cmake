# Decodes pictures for tests/parity/images.py, which is run by hand.
add_executable(decode_pictures EXCLUDE_FROM_ALL parity/images/decode_pictures.cc)
target_link_libraries(decode_pictures PRIVATE onnxtrain)
