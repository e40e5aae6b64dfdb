# How everything is compiled.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

# What is installed has line numbers for its stack traces, but no types: describing types took a fourth of a build's time.
# A CMAKE_CXX_FLAGS_RELWITHDEBINFO that is set, or another build type as in packages, is respected.
foreach(language C CXX)
  if(CMAKE_${language}_FLAGS_RELWITHDEBINFO STREQUAL "-O2 -g -DNDEBUG")
    set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
  endif()
endforeach()

option(AMLDIST_WERROR "Treat warnings as errors" OFF)
set(AMLDIST_SANITIZE "" CACHE STRING "Sanitizers for everything, as -fsanitize= takes them (address,undefined; thread)")

# Several files compiled as one parse their headers once, so names in unnamed namespaces must differ within a target. Off in debug
# builds, which people change and build again, and under a compiler launcher: ccache works best file by file.
set(plain ON)
if(CMAKE_BUILD_TYPE STREQUAL "Debug" OR CMAKE_CXX_COMPILER_LAUNCHER)
  set(plain OFF)
endif()
option(AMLDIST_UNITY "Compile several files as one" ${plain})
set(CMAKE_UNITY_BUILD ${AMLDIST_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 40)
set(CMAKE_OPTIMIZE_DEPENDENCIES ON)  # make, too, compiles a library before those that it will be linked with are ready

# Linked privately by every target: nothing of it leaks into the installed package.
add_library(amldist_options INTERFACE)
target_compile_options(amldist_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion
  $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>  # of files compiled as one, names shadow those of the others
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Wold-style-cast>
  # GCC looks for unused memory whenever a file takes 128 MiB, which is a tenth of its time; half a GiB is enough for a batch.
  $<$<AND:$<BOOL:${AMLDIST_UNITY}>,$<COMPILE_LANG_AND_ID:CXX,GNU>>:--param=ggc-min-heapsize=524288>)
if(AMLDIST_WERROR)
  target_compile_options(amldist_options INTERFACE -Werror
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=maybe-uninitialized>)  # a guess where it optimises, often wrong about std::optional
endif()
if(AMLDIST_SANITIZE)
  target_compile_options(amldist_options INTERFACE -fsanitize=${AMLDIST_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer
    # Functions of C libraries that are opened at run time are called by types of our own for their structures.
    $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=function>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND AMLDIST_SANITIZE MATCHES "thread")
    # Of fences it sees nothing. Ours are not between threads: the memory is another process's, or mapped twice.
    target_compile_options(amldist_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND AMLDIST_SANITIZE MATCHES "address")
    target_compile_definitions(amldist_options INTERFACE __SANITIZE_ADDRESS__=1)  # gcc's name for it
  endif()
  target_link_options(amldist_options INTERFACE -fsanitize=${AMLDIST_SANITIZE}
    $<$<LINK_LANG_AND_ID:C,Clang>:-fsanitize-link-c++-runtime>)
  # A program in C has the sanitizer's runtime for the libraries in C++ that it loads, too.
  target_link_libraries(amldist_options INTERFACE $<$<LINK_LANG_AND_ID:C,Clang>:-Wl,--no-as-needed,-lstdc++,--as-needed>)
else()
  target_compile_definitions(amldist_options INTERFACE $<$<NOT:$<CONFIG:Debug>>:_FORTIFY_SOURCE=2>)
  target_compile_options(amldist_options INTERFACE -fstack-protector-strong)
endif()

# For what runs once, or waits for others: the optimiser is most of its build, and more of it changes nothing that can be measured.
# What is called in each step of a training does not link this.
add_library(amldist_runs_once INTERFACE)
target_compile_options(amldist_runs_once INTERFACE $<$<CONFIG:RelWithDebInfo>:-O1>
  $<$<AND:$<CONFIG:RelWithDebInfo>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)  # wrong about std::optional there
