# Packages of the program by `cpack --config build/CPackConfig.cmake`: heddle_VERSION_ARCH.deb and
# heddle-VERSION-SYSTEM-ARCH.tar.gz, with manual pages, completions, examples and the licence. Libraries and headers for
# other programs are the component `development`, which `cmake --install` installs too.
include(GNUInstallDirs)
install(FILES README.md LICENSE CHANGELOG.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/heddle COMPONENT program USE_SOURCE_PERMISSIONS)
# Pages and completions are what the program prints: another processor's is run by its emulator.
install(CODE "set(heddle ${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:heddle>)
set(version ${PROJECT_VERSION})
set(source_folder ${CMAKE_SOURCE_DIR})
set(doc_folder ${CMAKE_INSTALL_DOCDIR})
set(man_folder ${CMAKE_INSTALL_MANDIR}/man1)
set(data_folder ${CMAKE_INSTALL_DATADIR})" COMPONENT program)
install(SCRIPT tools/printed_pages.cmake COMPONENT program)

set(CPACK_PACKAGE_NAME heddle)
set(CPACK_PACKAGE_VENDOR "the Heddle maintainers")
set(CPACK_PACKAGE_CONTACT "the Heddle maintainers <maintainers@heddle.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "plans and trains language models")
set(CPACK_PACKAGE_DESCRIPTION "Heddle says what a training step of a large language model takes before it
runs, searches for a better plan, and trains mixture-of-experts and dense
models on processors.")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_PACKAGE_FILE_NAME heddle-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
# One component, and no component's install: with it one switch adds a top folder to the archive and to the package.
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};heddle;program;/")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS openmpi-bin)
include(CPack)
