# cmake -DIN=page.html -DOUT=page.c -P embed.cmake
# Writes the bytes of a file as the C array `page_html`, whose size is page_html_bytes.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "#include \"ps/monitor/page.h\"
const unsigned char page_html[] = {
${hex}};
const size_t page_html_bytes = sizeof page_html;
")
