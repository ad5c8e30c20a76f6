# Writes the command's manual pages and completions.
# usage: cmake -DNVFP4=path/to/nvfp4 -DTO=folder -P write_pages.cmake
function(write file)
  execute_process(COMMAND ${NVFP4} ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${TO}/${file} "${text}")
endfunction()

write(man/man1/nvfp4.1 man)
foreach(command quantize convert inspect compare verify repair sample bench tune selftest completions man)
  write(man/man1/nvfp4-${command}.1 man ${command})
endforeach()
write(bash-completion/completions/nvfp4 completions bash)
write(zsh/site-functions/_nvfp4 completions zsh)
write(fish/vendor_completions.d/nvfp4.fish completions fish)
