# Writes what the program prints of itself into an installation: manual pages, and completions of three shells. Beside
# them the two files that Debian wants of a package: its changes, and a word on its licence.
# `heddle`: the program, behind its emulator where it has one; `doc_folder`, `man_folder`, `data_folder`: below the prefix.
set(installed "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
find_program(GZIP gzip)

function(printed into)
  execute_process(COMMAND ${heddle} ${ARGN} OUTPUT_VARIABLE text RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${heddle} ${ARGN}: status ${status}")
  endif()
  file(WRITE "${installed}/${into}" "${text}")
endfunction()

# The same file at each time: without a date in it.
function(compressed path)
  if(GZIP)
    execute_process(COMMAND ${GZIP} -9nf "${installed}/${path}" COMMAND_ERROR_IS_FATAL ANY)
  endif()
endfunction()

function(printed_page name)
  printed(${man_folder}/${name}.1 man ${ARGN})
  compressed(${man_folder}/${name}.1)
endfunction()

printed(${data_folder}/bash-completion/completions/heddle completion bash)
foreach(folder site-functions vendor-completions)    # Debian's zsh reads the latter only
  printed(${data_folder}/zsh/${folder}/_heddle completion zsh)
endforeach()
printed(${data_folder}/fish/vendor_completions.d/heddle.fish completion fish)
printed_page(heddle)
execute_process(COMMAND ${heddle} help OUTPUT_VARIABLE help)
string(REGEX MATCHALL "\n  heddle [a-z]+" commands "${help}")
foreach(command IN LISTS commands)
  string(REGEX REPLACE "\n  heddle " "" command "${command}")
  printed_page(heddle-${command} ${command})
endforeach()

file(TIMESTAMP ${source_folder}/CHANGELOG.md day "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE ${installed}/${doc_folder}/changelog "heddle (${version}) unstable; urgency=medium

  * CHANGELOG.md in this folder says what is new.

 -- the Heddle maintainers <maintainers@heddle.invalid>  ${day}
")
compressed(${doc_folder}/changelog)
file(WRITE ${installed}/${doc_folder}/copyright "Copyright (C) 2026 the Heddle maintainers

Apache License, version 2.0: LICENSE in this folder; on Debian also
/usr/share/common-licenses/Apache-2.0.
")
