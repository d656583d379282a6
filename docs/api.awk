# Headers as doxygen reads them: the comment at a file's head describes the file, and names stand without the inline
# namespace. Lines keep their numbers.
FNR == 1 { file = FILENAME; sub(/.*include\//, "", file); head = 1 }
head && /^\/\// { sub(/^\/\//, FNR == 1 ? "/// @file " file : "///") }
!/^\/\// { head = 0 }
{ gsub(/::inline v0/, ""); gsub(/v0::/, ""); print }
