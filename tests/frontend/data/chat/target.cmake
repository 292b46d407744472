find_package(nlohmann_json REQUIRED)
target_link_libraries(${name} PRIVATE nlohmann_json::nlohmann_json)
# Renders chats for tools/chat_templates.py, which is run by hand.
add_executable(render_chats EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tests/parity/chat_templates/render_chats.cc)
target_link_libraries(render_chats PRIVATE frontend_base frontend_graph frontend_data nlohmann_json::nlohmann_json)
