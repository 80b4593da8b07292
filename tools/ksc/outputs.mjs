// What spec/weig.ksy is compiled into.
//   folder, file  below spec/generated
//   target        the compiler's name of the language
//   mode          "debug" keeps positions and reads nothing by itself; "write" can write as well as read
//   comment       how a comment starts
export const OUTPUTS = [
  { folder: "python", file: "weig.py", target: "python", mode: "", comment: "#" },
  { folder: "python_debug", file: "weig.py", target: "python", mode: "debug", comment: "#" },
  { folder: "python_write", file: "weig.py", target: "python", mode: "write", comment: "#" },
  { folder: "javascript", file: "Weig.js", target: "javascript", mode: "", comment: "//" },
  { folder: "java", file: "Weig.java", target: "java", mode: "", comment: "//" },
  { folder: "go", file: "weig.go", target: "go", mode: "", comment: "//" },
];
