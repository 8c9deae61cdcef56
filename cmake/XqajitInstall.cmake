# What `cmake --install` lays down. The library finds its worker relative to itself, and the package files find the prefix
# relative to themselves, so that the tree may be moved.
include(CMakePackageConfigHelpers)

set_target_properties(xqajit PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
set_target_properties(xqajit_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

install(TARGETS xqajit EXPORT xqajit LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS xqajit_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS xqajit_worker RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/xqajit)
install(FILES include/xqajit/xqajit.h include/xqajit/xqajit.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/xqajit)
install(FILES tools/shapes/models.json DESTINATION ${CMAKE_INSTALL_DATADIR}/xqajit)

set(xqajit_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/xqajit)
install(EXPORT xqajit NAMESPACE xqajit:: FILE xqajitConfig.cmake DESTINATION ${xqajit_package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/xqajitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/xqajitConfigVersion.cmake DESTINATION ${xqajit_package_dir})

configure_file(cmake/xqajit.pc.in ${CMAKE_BINARY_DIR}/xqajit.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/xqajit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
