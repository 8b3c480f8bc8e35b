# SPDX-License-Identifier: Apache-2.0
# cmake -D build= -D scratch= -D consumer= -D component= -D examples= -D embedded_client_test=
#   -D generator= -D compiler= -P install_test.cmake
set(prefix ${scratch}/prefix)
file(REMOVE_RECURSE ${scratch})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed with ${status}: ${command}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${build} --prefix ${prefix})
run(${CMAKE_COMMAND} -S ${consumer} -B ${scratch}/build -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
message(STATUS "${output}")
run(${CMAKE_COMMAND} --build ${scratch}/build)
run(${scratch}/build/consumer)
message(STATUS "${output}")

run(${CMAKE_COMMAND} -S ${examples}/own_strategy -B ${scratch}/own_strategy -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix})
run(${CMAKE_COMMAND} --build ${scratch}/own_strategy)
run(${scratch}/own_strategy/own_strategy)
if(NOT output MATCHES "run completed")
  message(FATAL_ERROR "the example's run does not complete:\n${output}")
endif()

# An algorithm of one's own, in the ordinary command: of the recurrence and of whole peers alike.
run(${CMAKE_COMMAND} -S ${examples}/own_algorithm -B ${scratch}/own_algorithm -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix}
  -D CMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON)
run(${CMAKE_COMMAND} --build ${scratch}/own_algorithm)
foreach(kind "" "--real-protocol")
  set(own_run ${scratch}/own_algorithm/run${kind})
  run(${scratch}/own_algorithm/own_algorithm simulate --algorithm median --topology ring --nodes 6
    --dataset synthetic:rows=600,features=12,classes=3 --steps 40 --out ${own_run} ${kind})
  file(READ ${own_run}/summary.json summary)
  string(JSON models GET "${summary}" models_sha256)
  list(APPEND own_models ${models})
endforeach()
list(REMOVE_DUPLICATES own_models)
if(NOT own_models MATCHES "^[0-9a-f]+$")
  message(FATAL_ERROR "the models of the recurrence and of whole peers differ: ${own_models}")
endif()

# Topologies of one's own, likewise.
run(${CMAKE_COMMAND} -S ${examples}/own_topology -B ${scratch}/own_topology -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix}
  -D CMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON)
run(${CMAKE_COMMAND} --build ${scratch}/own_topology)
run(${scratch}/own_topology/own_topology topology chords:reach=3 --nodes 12)
if(NOT output MATCHES "topology +chords:reach=3" OR NOT output MATCHES "connected +yes")
  message(FATAL_ERROR "the topology of one's own is not described:\n${output}")
endif()
foreach(topology chords shuffled-ring)
  set(own_models "")
  foreach(kind "" "--real-protocol")
    set(own_run ${scratch}/own_topology/${topology}${kind})
    run(${scratch}/own_topology/own_topology simulate --topology ${topology} --nodes 8
      --dataset synthetic:rows=600,features=12,classes=3 --steps 40 --out ${own_run} ${kind})
    file(READ ${own_run}/summary.json summary)
    string(JSON models GET "${summary}" models_sha256)
    list(APPEND own_models ${models})
  endforeach()
  list(REMOVE_DUPLICATES own_models)
  if(NOT own_models MATCHES "^[0-9a-f]+$")
    message(FATAL_ERROR "${topology}: the models of the recurrence and of whole peers differ: "
      "${own_models}")
  endif()
endforeach()

# Components ask for no more packages than they need.
run(${CMAKE_COMMAND} -S ${component} -B ${scratch}/component -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix}
  -D CMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON -D CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
  -D CMAKE_DISABLE_FIND_PACKAGE_CapnProto=ON)
run(${CMAKE_COMMAND} --build ${scratch}/component)
run(${scratch}/component/component)
message(STATUS "${output}")

run(${CMAKE_COMMAND} -S ${examples}/embedded_client -B ${scratch}/embedded_client -G ${generator}
  -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${prefix}
  -D CMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON -D CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON)
run(${CMAKE_COMMAND} --build ${scratch}/embedded_client)
run(${embedded_client_test} ${scratch}/embedded_client/embedded_client ${prefix}/bin)
message(STATUS "${output}")

file(GLOB programs ${prefix}/bin/starling-*)
foreach(program ${programs})
  run(${program} --version)
  message(STATUS "${program} ${output}")
endforeach()
