package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"testing"
)

// mayUse lists the tables that the methods of each type may use. If a method needs a
// different table, it must call a method of a type that may use this table.
var mayUse = map[string][]string{
	"access":       {"tokens", "serviceAccounts", "roles", "roleBindings", "workloadTrusts", "accessKeys", "signingKeys", "rateNotes", "instances", "projects"},
	"imageManager": {"repositories", "tokens"},
	"stateManager": {"stagedDisks", "tokens", "serviceAccounts", "projects", "disks", "snapshots"},
}

// TestMethodsUseOnlyTheirTables proves that the methods of each type in mayUse access only the
// permitted tables.
func TestMethodsUseOnlyTheirTables(t *testing.T) {
	files, err := parser.ParseDir(token.NewFileSet(), ".", nil, 0) //nolint:staticcheck // the package has no build tags that matter here
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]bool{}
	for _, f := range files["engine"].Files {
		for _, d := range f.Decls {
			for _, name := range tablesOf(d) {
				tables[name] = true
			}
		}
	}
	if len(tables) < 20 {
		t.Fatalf("found only the tables %v", tables)
	}
	checked := map[string]int{}
	for _, f := range files["engine"].Files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			owner := receiver(fn)
			allowed, limited := mayUse[owner]
			if !limited {
				continue
			}
			checked[owner]++
			for name := range packageNames(fn.Body) {
				if tables[name] && !slices.Contains(allowed, name) {
					t.Errorf("method %s of %s uses the table %s: move the code to the owner of this table, or add the table to mayUse", fn.Name.Name, owner, name)
				}
			}
		}
	}
	for owner := range mayUse {
		if checked[owner] < 10 {
			t.Errorf("checked methods of %s: got %d, want at least 10", owner, checked[owner])
		}
	}
}

// tablesOf returns the names of all variables in a declaration that have the type
// store.Table or store.Notes.
func tablesOf(d ast.Decl) (names []string) {
	g, ok := d.(*ast.GenDecl)
	if !ok || g.Tok != token.VAR {
		return nil
	}
	for _, s := range g.Specs {
		v, ok := s.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			continue
		}
		lit, ok := v.Values[0].(*ast.CompositeLit)
		if !ok {
			continue
		}
		if ix, ok := lit.Type.(*ast.IndexExpr); ok {
			if sel, ok := ix.X.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Table" || sel.Sel.Name == "Notes") {
				names = append(names, v.Names[0].Name)
			}
		}
	}
	return names
}

// receiver returns the type name of a method's pointer receiver. For other functions it returns "".
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	if star, ok := fn.Recv.List[0].Type.(*ast.StarExpr); ok {
		if id, ok := star.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// packageNames returns the package-level names that the body of a function uses.
func packageNames(body *ast.BlockStmt) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr: // the selected name belongs to another declaration
			ast.Inspect(n.X, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && atPackageLevel(id) {
					names[id.Name] = true
				}
				return true
			})
			return false
		case *ast.Ident:
			if atPackageLevel(n) {
				names[n.Name] = true
			}
		}
		return true
	})
	return names
}

// atPackageLevel reports whether id can refer to a table. If the declaration of id is in another
// file, the result is true. Otherwise the result is true only if id is declared as a table.
func atPackageLevel(id *ast.Ident) bool {
	if id.Obj == nil {
		return true
	}
	v, ok := id.Obj.Decl.(*ast.ValueSpec)
	return ok && id.Obj.Kind == ast.Var && len(v.Values) == 1 && tablesOf(&ast.GenDecl{Tok: token.VAR, Specs: []ast.Spec{v}}) != nil
}
