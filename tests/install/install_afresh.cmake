# A prefix left by an earlier run would hide a file that is no longer installed.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX}
  COMMAND_ERROR_IS_FATAL ANY)
