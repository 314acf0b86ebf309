# FREESTANDING_SOURCES: networks, with what reads and writes them as bytes, for a place where there are no threads, files,
# signals and terminal. They have no device here but the CPU's baseline and plain loops.
get_filename_component(root ${CMAKE_CURRENT_LIST_DIR}/../../.. ABSOLUTE)
file(GLOB FREESTANDING_SOURCES CONFIGURE_DEPENDS
  ${root}/cpu/*.cpp ${root}/plain/*.cpp ${root}/src/base/*.cpp ${root}/src/network/*.cpp)
if(EXTRAS)
  file(GLOB EXTRA_LAYERS CONFIGURE_DEPENDS ${root}/extras/*/*_cpu.cpp ${root}/extras/*/*_plain.cpp
    ${root}/extras/*/*_settings.cpp)
  list(APPEND FREESTANDING_SOURCES ${EXTRA_LAYERS})
endif()
list(REMOVE_ITEM FREESTANDING_SOURCES ${root}/src/network/mixer_flags.cpp)  # of the command line
foreach(source device/choice device/isa device/memory device/processes files/safetensors files/safetensors_header
    runs/checkpoint settings/config settings/key_hints settings/presets settings/schedule tasks/task tasks/text/dataset
    tasks/text/generator tasks/text/text tasks/text/text_model tasks/tokenizer)
  list(APPEND FREESTANDING_SOURCES ${root}/src/${source}.cpp)
endforeach()
list(APPEND FREESTANDING_SOURCES ${CMAKE_CURRENT_LIST_DIR}/system.cpp)
