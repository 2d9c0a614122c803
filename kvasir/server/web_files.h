// The files of the web page, which kvasir_embed (cmake/KvasirEmbed.cmake) puts into the program.
// Deliberately no reading at run time: the page works wherever the program does.
#ifndef KVASIR_SERVER_WEB_FILES_H_
#define KVASIR_SERVER_WEB_FILES_H_

#include <span>
#include <string_view>

namespace kvasir {

struct EmbeddedFile {
  std::string_view name;  // "page.css"
  std::string_view bytes;
};

std::span<const EmbeddedFile> WebFiles();

}  // namespace kvasir

#endif  // KVASIR_SERVER_WEB_FILES_H_
